package observe

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/distinct"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

// TopConfig configures [NewTop]. The zero value is ready to use, and shows keys unchanged.
type TopConfig struct {
	// Window is the time that the lists cover, from 1 s to 1 h. It slides in steps of a fifth: the lists
	// cover from 5 to 6 fifths. Default: 5 min.
	Window time.Duration

	// Policies is the maximum number of policies with lists: the first ones that are seen. Default: 32.
	Policies int

	// KeySecret, if not nil, is a secret of at least 16 bytes. Keys are then shown as "hmac:" and the first 16
	// hexadecimal digits of their HMAC-SHA-256, as by [LogDenials].
	KeySecret []byte

	// Clock is the clock to use instead of the system's. If it is set back by more than the window, the lists
	// begin anew.
	Clock func() time.Time
}

const (
	defaultTopWindow   = 5 * time.Minute
	defaultTopPolicies = 32

	// steps is the number of steps in which a window slides.
	steps = 5

	// parts is the number of parts of a step, by which the requests of a key are counted.
	parts = 6
)

// A Top lists the keys of each policy that make the most requests, and those that are denied most often. It uses
// bounded memory, whatever keys clients send. Set [ratelimit.Config.Observe] to its Observe method.
//
// Each key with at least 1 % of a policy's requests in the window is listed. A count is at most 0.8 % of these requests
// too high. The same holds for denials. Only requests of this process are counted.
//
// A Top is safe for concurrent use, also by several Limiters. It needs no closing. It uses about 180 KB for each policy,
// and at most 550 KB if keys are long. A block in the list of [Top.Blocked] uses at most 450 bytes.
type Top struct {
	stepSize time.Duration
	policies int
	secret   []byte
	clock    func() time.Time
	began    time.Time
	seed     maphash.Seed

	// Without a clock, current is the number of the current part while over is false. A timer sets it.
	current atomic.Int64
	over    atomic.Bool

	mu     sync.Mutex // for changes of tables
	tables atomic.Pointer[map[string]*topTable]

	blocks blocks
}

// A TopList is what [Top.Heaviest] and [Top.Denied] return.
type TopList struct {
	// Since is the beginning of the window.
	Since time.Time

	// Requests is the number of requests of the policy since then, and Denied how many of them it denied.
	Requests, Denied int64

	// Keys has the keys with the highest counts. They are sorted by the part of the count that is certain.
	Keys []TopKey

	// Others is the highest count that a key which is not listed can have.
	Others int64
}

// A TopKey is a key in a [TopList].
type TopKey struct {
	// Key is the key as a [ratelimit.KeyFunc] returned it. Clients may have chosen it, and it can contain any
	// bytes: escape it. It is "hmac:" and 16 hexadecimal digits with a KeySecret, and "sha256:" and 64
	// hexadecimal digits for a key of more than 256 bytes.
	Key string

	// Requests and Denied count the key's requests and those of them that were denied. In the list of Heaviest,
	// Requests is at most Error too high, and Denied at most Error too low. In the list of Denied, Denied is at most
	// Error too high, and Requests is the part that is certain.
	Requests, Denied int64
	Error            int64

	// Share is the part of the policy's requests that Requests is, or of its denials that Denied is in the list of
	// Denied: from 0 to 1.
	Share float64

	// Steps counts the requests by time, the oldest first. A step is a thirtieth of the window. The last one is not over.
	// Requests before the key had a place in the lists are missing.
	Steps []KeyStep
}

// A KeyStep counts the requests of a key in a step of a [TopKey], and how many of them were denied.
type KeyStep struct {
	Start            time.Time
	Requests, Denied int64
}

// NewTop returns a Top without any requests. It returns an error if a field of cfg is out of its range.
func NewTop(cfg TopConfig) (*Top, error) {
	if cfg.Window != 0 && (cfg.Window < time.Second || cfg.Window > time.Hour) {
		return nil, fmt.Errorf("observe: NewTop: TopConfig.Window is %v: must be from 1s to 1h, or 0 for the default of %v", cfg.Window, defaultTopWindow)
	}
	if cfg.Policies < 0 {
		return nil, fmt.Errorf("observe: NewTop: TopConfig.Policies is %d: must be positive, or 0 for the default of %d", cfg.Policies, defaultTopPolicies)
	}
	if err := keyname.CheckSecret(cfg.KeySecret, "TopConfig.KeySecret", "to show keys unchanged"); err != nil {
		return nil, fmt.Errorf("observe: NewTop: %w", err)
	}
	t := &Top{
		stepSize: cmp.Or(cfg.Window, defaultTopWindow) / steps,
		policies: cmp.Or(cfg.Policies, defaultTopPolicies),
		secret:   slices.Clone(cfg.KeySecret),
		clock:    cfg.Clock,
		seed:     maphash.MakeSeed(),
	}
	t.began = time.Now()
	if t.clock != nil {
		t.began = t.clock()
	}
	t.over.Store(true)
	t.tables.Store(&map[string]*topTable{})
	return t, nil
}

// Observe counts the keys of a request, a Decide, Admit, Take, Wait or Acquire, under each policy that the store decided about.
// Denials by a [ratelimit.Policy.Shadow] count as denials. A request that another policy denied counts, too.
func (t *Top) Observe(_ context.Context, e *ratelimit.Event) {
	if len(e.Results) == 0 {
		return
	}
	part := t.currentPart()
	switch e.Op {
	case "expired": // no store has looked at the bucket
		return
	case "peek", "refund", "reset", "block", "unblock", "settle":
		t.operated(part, e)
		return
	}
	for i := range e.Results {
		r := &e.Results[i]
		n := tally{requests: 1}
		if table := t.table(r.Policy); table != nil {
			n = table.add(t, part, r)
		}
		switch {
		case r.Blocked:
			t.blocks.meet(t, part, r, false)
		case r.Allowed && n.requests == n.denied+1 && e.Waited == 0: // the first in this part
			t.blocks.passed(t, part, r)
		}
	}
}

// now returns the time of the clock.
func (t *Top) now() time.Time {
	if t.clock != nil {
		return t.clock()
	}
	return time.Now()
}

// part returns the number of the current part of a step. Parts count from 0.
func (t *Top) part() int64 {
	since := max(0, t.now().Sub(t.began))
	return int64(since/t.stepSize)*parts + int64(since%t.stepSize*parts/t.stepSize)
}

// currentPart is like part, at a fraction of the cost of reading the clock.
func (t *Top) currentPart() int64 {
	if t.clock != nil || t.over.Load() && t.over.CompareAndSwap(true, false) {
		number := t.part()
		t.current.Store(number)
		if t.clock == nil {
			time.AfterFunc(time.Until(t.partBegan(number+1)), func() { t.over.Store(true) })
		}
		return number
	}
	return t.current.Load()
}

func (t *Top) partBegan(number int64) time.Time {
	within := (time.Duration(number%parts)*t.stepSize + parts - 1) / parts
	return t.began.Add(time.Duration(number/parts)*t.stepSize + within)
}

// table returns the table of a policy, or nil if there are too many.
func (t *Top) table(policy string) *topTable {
	tables := *t.tables.Load()
	if table := tables[policy]; table != nil || len(tables) >= t.policies {
		return table
	}
	return t.newTable(policy)
}

func (t *Top) newTable(policy string) *topTable {
	t.mu.Lock()
	defer t.mu.Unlock()
	tables := *t.tables.Load()
	if table := tables[policy]; table != nil || len(tables) >= t.policies {
		return table
	}
	tables = maps.Clone(tables)
	tables[policy] = new(topTable)
	t.tables.Store(&tables)
	return tables[policy]
}

// Heaviest returns the n keys of a policy that made the most requests in the window, and all others that may have made 1 %
// of them.
func (t *Top) Heaviest(policy string, n int) TopList { return t.list(policy, n, ofRequests) }

// Denied returns the n keys of a policy that were denied most often in the window, and all others that may have had 1 %
// of the denials.
func (t *Top) Denied(policy string, n int) TopList { return t.list(policy, n, ofDenials) }

// Key returns what the lists know of one key: as in the list of Heaviest, or as in that of Denied if it is only there.
// It returns false if the key is in neither.
func (t *Top) Key(policy, key string) (TopKey, bool) {
	c := t.copy(policy)
	hash := maphash.String(t.seed, key)
	for _, kind := range []int{ofRequests, ofDenials} {
		l := c.ranking(kind)
		if r := l.rows[hash]; r != nil {
			return l.key(hash, r), true
		}
	}
	return TopKey{}, false
}

// Limited returns a sketch of the keys that were denied lately, under any policy with lists: in the current step of
// [TopKey.Steps] and in the one before. Denials by a [ratelimit.Policy.Shadow] do not count.
func (t *Top) Limited() *distinct.Sketch {
	all, part := new(distinct.Sketch), t.part()
	for _, table := range *t.tables.Load() {
		table.limitedIn(part, all)
	}
	return all
}

// Find returns the key that the lists of a policy or [Top.Blocked] show as shown, to call a Limiter with it. It returns
// false if they do not have it, and for the "sha256:" form of a key of more than 256 bytes.
func (t *Top) Find(policy, shown string) (key string, ok bool) {
	c := t.copy(policy)
	for kind := range kinds {
		for _, s := range c.summaries(kind) {
			for j, kept := range s.key[:s.used] {
				if s.whole[j] && t.show(string(kept), true) == shown {
					return string(kept), true
				}
			}
		}
	}
	return t.blocks.find(t, policy, shown)
}

// keep returns what is kept of a key: the whole key, or its name in the lists.
func (t *Top) keep(key string) (kept string, whole bool) {
	switch {
	case len(key) <= keyname.MaxShort:
		return key, true
	case t.secret != nil:
		return keyname.Secret(t.secret, key), false
	}
	return hashName(key), false
}

// show returns the name in the lists of a key that is kept.
func (t *Top) show(kept string, whole bool) string {
	if whole && t.secret != nil {
		return keyname.Secret(t.secret, kept)
	}
	return kept
}

// A topRow is what the summaries of a window know of a key.
type topRow struct {
	kept         []byte
	whole        bool
	count, extra int64 // the true count is in [count−extra, count]
	denied       int64
}

func (r *topRow) certain() int64 { return r.count - r.extra }

// A ranking is the union of the summaries of a kind.
type ranking struct {
	of       *topCopy
	kind     int
	requests map[uint64]*topRow // those of ofRequests
	rows     map[uint64]*topRow
	missing  int64        // the highest count that a key without a row can have
	seen     [kinds]int64 // the requests and the denials of all keys
}

func (c *topCopy) ranking(kind int) *ranking {
	l := &ranking{of: c, kind: kind}
	for kind := range kinds {
		for _, s := range c.summaries(kind) {
			l.seen[kind] += s.seen()
		}
	}
	l.requests, l.missing = union(c.summaries(ofRequests))
	l.rows = l.requests
	if kind == ofDenials {
		l.rows, l.missing = union(c.summaries(ofDenials))
	}
	return l
}

// total is the sum of the counts of all keys.
func (l *ranking) total() int64 { return l.seen[l.kind] }

// union returns the keys of summaries, and the highest count that a key which is in none of them can have.
func union(summaries []*summary) (rows map[uint64]*topRow, missing int64) {
	rows = make(map[uint64]*topRow)
	for _, s := range summaries {
		missing += int64(s.least())
	}
	for _, s := range summaries {
		least := int64(s.least())
		for j := range s.used {
			r := rows[s.hash[j]]
			if r == nil {
				r = &topRow{kept: s.key[j], whole: s.whole[j], count: missing, extra: missing}
				rows[s.hash[j]] = r
			}
			r.count += int64(s.count[j]) - least
			r.extra += int64(s.extra[j]) - least
			r.denied += s.denials(j)
		}
	}
	return rows, missing
}

// key returns the row of a key as it is listed.
func (l *ranking) key(hash uint64, r *topRow) TopKey {
	k := TopKey{
		Key: l.of.top.show(string(r.kept), r.whole), Requests: r.count, Denied: r.denied, Error: r.extra,
		Share: float64(r.count) / float64(l.total()), Steps: l.of.history(hash),
	}
	if l.kind == ofDenials {
		k.Requests, k.Denied = r.certain(), r.count
		if as := l.requests[hash]; as != nil {
			k.Requests = max(k.Requests, as.certain())
		}
	}
	return k
}

func (t *Top) list(policy string, n, kind int) TopList {
	c := t.copy(policy)
	l := c.ranking(kind)
	list := TopList{Since: c.began(), Requests: l.seen[ofRequests], Denied: l.seen[ofDenials], Others: l.missing}
	byCount := func(a, b uint64) int {
		a_, b_ := l.rows[a], l.rows[b]
		return cmp.Or(cmp.Compare(b_.certain(), a_.certain()), cmp.Compare(b_.count, a_.count), slices.Compare(a_.kept, b_.kept))
	}
	for i, hash := range slices.SortedFunc(maps.Keys(l.rows), byCount) {
		r := l.rows[hash]
		if i >= n && r.count*100 < l.total() {
			list.Others = max(list.Others, r.count)
			continue
		}
		list.Keys = append(list.Keys, l.key(hash, r))
	}
	return list
}
