package dryrun

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

const (
	// maxText bounds a text of the request, in bytes.
	maxText = 256

	// maxSteps and maxNotes bound what functions of the program can make of one request.
	maxSteps = 1000
	maxNotes = 200

	// minSecret is the length of the shortest credential that is taken out anywhere, in bytes. Shorter ones are taken out as a
	// word only, or they would spoil other texts.
	minSecret = 6
)

func show(text string) string { return logtext.Show(text, maxText) }

// note adds a note. The caller has the lock.
func (run *Run) note(format string, args ...any) {
	n := len(run.open)
	if n == 0 {
		return
	}
	step := run.open[n-1]
	if len(step.Notes) > maxNotes {
		return
	}
	if len(step.Notes) == maxNotes {
		step.Notes = append(step.Notes, "there are more notes than are kept")
		return
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = show(arg)
		case error:
			args[i] = run.textOf(arg, maxText)
		}
	}
	step.Notes = append(step.Notes, fmt.Sprintf(format, args...))
}

// textOf returns the text of err without credentials, of at most that many bytes.
func (run *Run) textOf(err error, most int) string {
	text := keyerr.Text(err)
	// A credential that holds another one must be looked for first.
	slices.SortFunc(run.secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range run.secrets {
		switch {
		case !strings.Contains(text, secret):
		case len(secret) >= minSecret:
			text = strings.ReplaceAll(text, secret, "…")
		default:
			text = asWord(secret).ReplaceAllLiteralString(text, "…")
		}
	}
	return logtext.Show(text, most)
}

// asWord matches a secret that is no part of a longer word.
func asWord(secret string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(secret)
	if isWord(secret[0]) {
		pattern = `\b` + pattern
	}
	if isWord(secret[len(secret)-1]) {
		pattern += `\b`
	}
	return regexp.MustCompile(pattern)
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// Text returns the text of err as Note has it, of at most that many bytes.
func (run *Run) Text(err error, most int) string {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.textOf(err, most)
}

// Secret notes the length and the beginning of the SHA-256 of a secret that is called what, and takes it out of all errors that
// follow.
func (run *Run) Secret(secret, what string) {
	if secret == "" {
		return
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.hide(secret)
	sum := sha256.Sum256([]byte(secret))
	run.note("%s has %d bytes, and the SHA-256 %x…", what, len(secret), sum[:4])
}

// hide adds a secret, and the form that it has in a quoted text.
func (run *Run) hide(secret string) {
	quoted := strconv.Quote(secret)
	for _, text := range []string{secret, quoted[1 : len(quoted)-1]} {
		if text != "" {
			run.secrets = append(run.secrets, text)
		}
	}
}

// hideCredentials hides what r's Authorization, Proxy-Authorization and Cookie hold.
func (run *Run) hideCredentials(r *http.Request) {
	for _, name := range []string{"Authorization", "Proxy-Authorization"} {
		for _, value := range r.Header[name] {
			run.hide(value)
			_, credentials, _ := strings.Cut(value, " ")
			run.hide(strings.Trim(credentials, " "))
		}
	}
	if _, password, ok := r.BasicAuth(); ok {
		run.hide(password)
	}
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			_, value, _ := strings.Cut(pair, "=")
			run.hide(strings.Trim(value, ` "`))
		}
	}
}

// entryOf returns the entry point of a function, which all closures of one place have in common.
func entryOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// callerOf returns the entry point of the function that has called the caller of callerOf. It is 0 if that function is
// inlined in another one.
func callerOf() uintptr {
	var at [1]uintptr
	runtime.Callers(3, at[:])
	if frame, _ := runtime.CallersFrames(at[:]).Next(); frame.Func != nil {
		return frame.Func.Entry()
	}
	return 0
}
