package dryrun

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
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

	// maxSecrets bounds the texts that are taken out. Each text of the explanation is searched for each of them.
	maxSecrets = 400

	// minSecret is the length of the shortest text that is taken out anywhere, in bytes. Shorter ones are taken out as a
	// whole word only, or they would spoil other texts.
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
			args[i] = show(run.without(arg))
		case error:
			args[i] = run.textOf(arg)
		}
	}
	step.Notes = append(step.Notes, fmt.Sprintf(format, args...))
}

// textOf returns the text of err.
func (run *Run) textOf(err error) string { return logtext.Show(run.without(keyerr.Text(err)), maxText) }

// Text returns the text of err as Note has it, of at most that many bytes.
func (run *Run) Text(err error, most int) string {
	run.mu.Lock()
	defer run.mu.Unlock()
	return logtext.Show(run.without(keyerr.Text(err)), most)
}

// Hide takes secret out of all errors and notes that follow.
func (run *Run) Hide(secret string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.hide(secret)
}

// Secret notes the length and the beginning of the SHA-256 of a secret that is called what, and hides it.
func (run *Run) Secret(secret, what string) {
	if secret == "" {
		return
	}
	sum := sha256.Sum256([]byte(secret))
	run.Hide(secret)
	run.Note("%s has %d bytes, and the SHA-256 %x…", what, len(secret), sum[:4])
}

// hide hides secret, and the form that it has in a quoted text.
func (run *Run) hide(secret string) {
	run.hideText(secret)
	quoted := strconv.Quote(secret)
	run.hideText(quoted[1 : len(quoted)-1])
}

func (run *Run) hideText(secret string) {
	switch {
	case secret == "" || slices.Contains(run.secrets, secret):
	case len(run.secrets) == maxSecrets:
		run.allSecret = true
	default:
		run.secrets = append(run.secrets, secret)
		// A secret that holds another one must be looked for first.
		slices.SortStableFunc(run.secrets, func(a, b string) int { return len(b) - len(a) })
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
		run.hide(line)
		for pair := range strings.SplitSeq(line, ";") {
			_, value, _ := strings.Cut(pair, "=")
			run.hide(strings.Trim(value, ` "`))
		}
	}
}

// without returns text without the secrets. Of a request with more of them than anybody sends, no text is kept.
func (run *Run) without(text string) string {
	if run.allSecret {
		return "…"
	}
	for _, secret := range run.secrets {
		if len(secret) < minSecret {
			text = withoutWord(text, secret)
		} else {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}

// withoutWord returns text without secret where it is neither a part of a longer word or number nor of an address.
func withoutWord(text, secret string) string {
	var out strings.Builder
	done := 0 // the part of text that is in out
	for from := 0; ; {
		at := strings.Index(text[from:], secret)
		if at < 0 {
			return out.String() + text[done:]
		}
		at += from
		end := at + len(secret)
		if at > 0 && isWord(text[at-1]) || end < len(text) && isWord(text[end]) || inAddress(text, at, end) {
			from = at + 1
			continue
		}
		out.WriteString(text[done:at] + "…")
		done, from = end, end
	}
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// inAddress reports whether text[at:end] is a part of an IP address, also of one with a port or of a network.
func inAddress(text string, at, end int) bool {
	const letters = "0123456789abcdefABCDEF.:/"
	for at > 0 && strings.IndexByte(letters, text[at-1]) >= 0 {
		at--
	}
	for end < len(text) && strings.IndexByte(letters, text[end]) >= 0 {
		end++
	}
	around := strings.TrimRight(text[at:end], ".:/") // at the end of a sentence
	if len(around) > len("0000:0000:0000:0000:0000:ffff:255.255.255.255/128") {
		return false
	}
	if _, err := netip.ParseAddr(around); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(around); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(around)
	return err == nil
}

// entryOf returns the entry point of a function, which all closures of one place have in common.
func entryOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// functionAt returns the name of the Go function at that entry point.
func functionAt(entry uintptr) string {
	f := runtime.FuncForPC(entry)
	if f == nil {
		return "a function"
	}
	return f.Name()
}

// callerOf returns the entry point of the function that has called the caller of callerOf. It is 0 if that function is
// inlined in another one.
func callerOf() uintptr {
	var at [1]uintptr
	if runtime.Callers(3, at[:]) == 0 {
		return 0
	}
	frame, _ := runtime.CallersFrames(at[:]).Next()
	if frame.Func == nil {
		return 0
	}
	return frame.Func.Entry()
}

// Inside reports whether f, a function that is not inlined, has called the caller of Inside directly or through others, in
// the same goroutine. That caller may be f itself.
func Inside(f any) bool {
	var at [512]uintptr
	frames := runtime.CallersFrames(at[:runtime.Callers(3, at[:])])
	for {
		frame, more := frames.Next()
		if frame.Entry == entryOf(f) {
			return true
		}
		if !more {
			return false
		}
	}
}
