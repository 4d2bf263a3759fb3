package policyfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// WatchConfig configures [Watch].
type WatchConfig struct {
	Every  time.Duration // between two looks; default 1 s
	Logger *slog.Logger  // default slog.Default
}

// Watch reads the file at path and calls [ratelimit.Limiter.Reload] with its policies. Then it returns. Until ctx ends, it
// does so again whenever the file has changed and was the same in two looks. Call it after the routes are mounted. If the
// first read fails, nothing is watched, and the error is that of the read, such as [Faults].
//
// Each change is logged, with the names of the policies and the old and new limits. A file with a fault, or one that cannot
// be read, is logged and changes nothing. It is a fault, too, if a policy of the last file is missing, unless it stands
// under `removed`. A policy with `on` is replaced where [ratelimit.Limiter.Limit] has mounted it. If it is mounted nowhere,
// it is left out and logged.
//
// Write a new file beside the old one and rename it over that. A file that is written in place can be read when a part of it
// is missing.
func Watch(ctx context.Context, l *ratelimit.Limiter, path string, reg Registry, cfg WatchConfig) error {
	if cfg.Every < 0 {
		return fmt.Errorf("policyfile: Watch: Every %v: must be positive; 0 means the default of 1s", cfg.Every)
	}
	w := &watcher{limiter: l, path: path, reg: reg, log: cmp.Or(cfg.Logger, slog.Default())}
	text, err := readRegular(path)
	if err != nil {
		return fmt.Errorf("policyfile: %w", err)
	}
	if err := w.apply(text); err != nil {
		return err
	}
	go w.watch(ctx, cmp.Or(cfg.Every, time.Second))
	return nil
}

// A watcher remembers what it has seen of a file. Texts are compared by their SHA-256: times of files are too coarse, and
// are kept by some tools.
type watcher struct {
	limiter *ratelimit.Limiter
	path    string
	reg     Registry
	log     *slog.Logger

	inForce *File
	applied sum
	seen    sum    // in the last look
	refused sum    // the text with a fault that was logged last
	unread  string // the error of reading that was logged last
}

type sum [sha256.Size]byte

// readRegular reads a file that is no pipe, where reading could take forever.
func readRegular(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("must be a regular file or a link to one")}
	}
	return readFile(path)
}

func (w *watcher) watch(ctx context.Context, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if ctx.Err() == nil { // both may be ready
				w.look()
			}
		}
	}
}

// look applies the file if it has changed, and was the same in the last look. Somebody might be writing it.
func (w *watcher) look() {
	text, err := readRegular(w.path)
	if err != nil {
		if w.unread != err.Error() {
			w.unread = err.Error()
			w.log.Error("policyfile: the file cannot be read: its last policies stay in force", "file", w.path, "error", err)
		}
		w.seen = sum{}
		return
	}
	w.unread = ""
	now := sum(sha256.Sum256(text))
	before := w.seen
	w.seen = now
	switch {
	case now == w.applied:
		w.refused = sum{}
	case now != before, now == w.refused:
	default:
		if err := w.apply(text); err != nil {
			w.refused = now
			w.log.Error("policyfile: the file has faults: its last policies stay in force", "file", w.path, "faults", strings.Split(err.Error(), "\n"))
		}
	}
}

// apply reloads the policies of text. The error says why nothing has changed.
func (w *watcher) apply(text []byte) error {
	file, err := Parse(w.path, text, w.reg)
	if err != nil {
		return err
	}
	if faults := file.lost(w.inForce); len(faults) > 0 {
		return faults
	}
	mounted := namesOf(w.limiter.Policies())
	var policies []ratelimit.Policy
	var order []int
	for i, m := range file.mounts {
		switch {
		case len(m.Unknown) > 0:
			w.log.Warn("policyfile: a policy is left out: it uses names of Registry.Unknown", "file", w.path, "line", m.Line, "policy", m.Policy.Name, "names", m.Unknown)
		case len(m.On) > 0 && !slices.Contains(mounted, m.Policy.Name):
			w.log.Warn("policyfile: a policy is not in force: mount it with Limiter.Limit on the routes of its `on`", "file", w.path, "line", m.Line, "policy", m.Policy.Name)
		default:
			policies, order = append(policies, m.Policy), append(order, i)
		}
	}
	if len(policies) == 0 {
		return Faults{file.faultAtList("must have a policy that the program has mounted, or one without on")}
	}
	before := w.limiter.ProgramLimits()
	if err := w.limiter.Reload(policies...); err != nil {
		return file.faults(err, order)
	}
	for _, name := range namesOf(w.limiter.Policies()) {
		if file.removed[name] {
			w.log.Warn("policyfile: a removed policy stays in force where Limiter.Limit has mounted it, until the program starts again", "file", w.path, "policy", name)
		}
	}
	w.log.Info("policyfile: policies are in force", "file", w.path,
		"changed", listed(file.changed(w.inForce)),
		"limits", listed(changedLimits(before, w.limiter.ProgramLimits())))
	w.inForce, w.applied, w.refused = file, sha256.Sum256(text), sum{}
	return nil
}

// maxListed bounds the policies that a log line lists.
const maxListed = 50

// listed returns the first of all, and how many more there are.
func listed(all []string) []string {
	if len(all) <= maxListed {
		return all
	}
	return append(all[:maxListed:maxListed], fmt.Sprintf("and %d more", len(all)-maxListed))
}

// changedLimits returns the limits that are not the same before and after, such as "api: 60/1m burst 10 -> 60/1m burst 20".
func changedLimits(before, after map[string][]ratelimit.Limit) (texts []string) {
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was, is := limitText(before[name]), limitText(after[name]); was != is {
			texts = append(texts, name+": "+was+" -> "+is)
		}
	}
	return texts
}

// limitText returns the limits with which a policy is mounted.
func limitText(limits []ratelimit.Limit) string {
	var texts []string
	for _, l := range limits {
		text := l.String()
		if l == (ratelimit.Limit{}) {
			text = "by limit_func"
		}
		texts = append(texts, text)
	}
	return cmp.Or(strings.Join(texts, " or "), "none")
}

func namesOf(policies []ratelimit.Policy) (names []string) {
	for _, p := range policies {
		names = append(names, p.Name)
	}
	return names
}

// lost returns the policies that are missing in f since before, which may be nil, as faults.
func (f *File) lost(before *File) (faults Faults) {
	if before == nil {
		return nil
	}
	for _, m := range before.mounts {
		name := m.Policy.Name
		if _, has := f.byName[name]; !has && !f.removed[name] && len(faults) < maxFaults {
			faults = append(faults, f.faultAtList(fmt.Sprintf("policy %s is missing, which the file had before: to remove it, write removed: [%s]", name, name)))
		}
	}
	return faults
}

func (f *File) faultAtList(text string) Fault {
	return Fault{File: f.name, Line: f.list.Line, Column: f.list.Column, Field: "policies", Text: text}
}

// changed returns the names of the policies that are not the same in before, which may be nil.
func (f *File) changed(before *File) (names []string) {
	if before == nil {
		before = &File{}
	}
	for name, i := range f.byName {
		if j, had := before.byName[name]; !had || flowText(before.mounts[j].node) != flowText(f.mounts[i].node) {
			names = append(names, name)
		}
	}
	for name := range before.byName {
		if _, has := f.byName[name]; !has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
