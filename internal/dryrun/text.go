package dryrun

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

const (
	// maxText bounds a text of the request, in bytes.
	maxText = 256

	// maxTried and maxNotes bound what a function of the program can make of one request.
	maxTried = 100
	maxNotes = 200

	// minSecret is the length of the shortest text that counts as a credential, in bytes. To take out shorter ones, such as
	// the 1 of a cookie, would spoil other texts.
	minSecret = 4
)

// Note adds a note to the function that was opened last. Strings and errors among args are cut and escaped, and
// credentials are taken out of errors.
func (run *Run) Note(format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = logtext.Show(arg, maxText)
		case error:
			args[i] = run.Text(arg, maxText)
		}
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if n := len(run.open); n > 0 && len(run.open[n-1].Notes) < maxNotes {
		run.open[n-1].Notes = append(run.open[n-1].Notes, fmt.Sprintf(format, args...))
	}
}

// Text returns the text of err without credentials, of at most that many bytes.
func (run *Run) Text(err error, most int) string {
	text := failure.Text(err)
	run.mu.Lock()
	defer run.mu.Unlock()
	// A credential that holds another one must be looked for first.
	slices.SortFunc(run.secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range run.secrets {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return logtext.Show(text, most)
}

// Secret notes the length and the beginning of the SHA-256 of a secret that is called what, and takes it out of all errors that
// follow. Without a run it does nothing.
func (run *Run) Secret(secret, what string) {
	if run != nil && secret != "" {
		run.hide(secret)
		sum := sha256.Sum256([]byte(secret))
		run.Note("%s has %d bytes, and the SHA-256 %x…", what, len(secret), sum[:4])
	}
}

// hide adds a secret, and the form that it has in a quoted text.
func (run *Run) hide(secret string) {
	quoted := strconv.Quote(secret)
	run.mu.Lock()
	defer run.mu.Unlock()
	for _, text := range []string{secret, quoted[1 : len(quoted)-1]} {
		if len(text) >= minSecret {
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
