package dryrun

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/virtualtime"
)

func key(*http.Request) (string, error) { return "", nil }

func TestNotesHoldNoSecrets(t *testing.T) {
	r := &http.Request{Header: http.Header{
		"Authorization": {"Bearer a-token"}, "Cookie": {`session="a-session"; short=x`}, "Proxy-Authorization": {"Basic dXNlcjphLXBhc3N3b3Jk"},
	}}
	_, run, end := Begin(t.Context(), r)
	defer end()
	step := run.Open(key)
	run.Hide("a-key-in-a-header")
	for _, secret := range []string{"a-token", "a-session", "dXNlcjphLXBhc3N3b3Jk", "a-key-in-a-header"} {
		run.Note("%s and %v", "before "+secret+" after", errors.New("an error with "+secret))
		if text := run.Text(errors.New(secret+"!"), 10); text != "…!" {
			t.Errorf("the text is %q", text)
		}
	}
	run.Note("%s", strings.Repeat("x", 300)+"\x1b")
	run.Close(step, "", errors.New("a-token"))
	found := run.Took()
	if found.Err != "…" || len(found.Notes) != 5 || found.Notes[4] != strings.Repeat("x", 256)+"…" {
		t.Errorf("%+v", found)
	}
	for _, note := range found.Notes[:4] {
		if note != "before … after and an error with …" {
			t.Errorf("the note is %q", note)
		}
	}
	if run.Took() != nil {
		t.Error("a step is taken twice")
	}
}

// A request with thousands of credentials is explained at once, and shows none of them.
func TestNotesOfARequestWithManySecrets(t *testing.T) {
	for _, name := range []string{"Authorization", "Cookie"} {
		r := &http.Request{Header: make(http.Header)}
		for i := range 2000 {
			r.Header.Add(name, fmt.Sprintf("a%d=secret-%d", i, i))
		}
		_, run, end := Begin(t.Context(), r)
		step := run.Open(key)
		run.Note("%s", "before secret-1999 after")
		run.Close(step, "", errors.New("secret-1000"))
		end()
		if found := run.Took(); strings.Contains(fmt.Sprint(found.Err, found.Notes), "secret") {
			t.Errorf("%s: %+v", name, found)
		}
		if n := len(run.secrets); n > maxSecrets {
			t.Errorf("%s: each text is searched for %d secrets", name, n)
		}
	}
}

// Only contexts of an explained request have a run, and only while it is explained.
func TestOf(t *testing.T) {
	r := (&http.Request{}).WithContext(t.Context())
	ctx, run, end := Begin(r.Context(), r)
	explained := r.WithContext(ctx)
	if Of(ctx) != run || OfRequest(explained) != run || Of(t.Context()) != nil || OfRequest(r) != nil || virtualtime.Sleep(ctx, 0) {
		t.Error("while it is explained")
	}
	end()
	if Of(ctx) != nil || OfRequest(explained) != nil {
		t.Error("after it was explained")
	}
}

// What a function has started and not waited for neither hides how the key was found nor takes its place.
func TestStepsThatGoOn(t *testing.T) {
	r := (&http.Request{}).WithContext(t.Context())
	_, run, end := Begin(r.Context(), r)
	defer end()
	first := run.Open(TestOf)
	stray := run.Open(TestOf)
	run.Close(first, "first", nil)
	run.Close(stray, "stray", nil)
	if step := run.Took(); step == nil || step.Key != "first" {
		t.Errorf("took %+v, want the first", step)
	}
	run.Open(TestOf) // of the stray one
	run.Forget()
	second := run.Open(TestOf)
	run.Close(second, "second", nil)
	if step := run.Took(); step == nil || step.Key != "second" {
		t.Errorf("took %+v, want the second", step)
	}
}

// An error that quotes a credential has it escaped.
func TestQuotedCredentials(t *testing.T) {
	r := &http.Request{Header: http.Header{"Authorization": {`Bearer canary"of\a token`}, "Cookie": {`session=canary\of"a session`}}}
	_, run, end := Begin(t.Context(), r)
	defer end()
	for _, secret := range []string{r.Header.Get("Authorization"), `canary"of\a token`, r.Header.Get("Cookie"), `canary\of"a session`} {
		if text := run.Text(fmt.Errorf("odd: %q", secret), 200); strings.Contains(text, "canary") {
			t.Errorf("%q is shown: %s", secret, text)
		}
	}
}

// A short credential is taken out where it stands as a whole word, and leaves other words and addresses as they are.
func TestShortCredentials(t *testing.T) {
	r := &http.Request{Header: http.Header{
		"Authorization": {"Basic dTpwdw=="}, "Cookie": {`sid=203; a=5; b="en"; c=a-b; d=ab"c; e=5`}, "Proxy-Authorization": {"Bearer x1y"}, // u:pw
	}}
	_, run, end := Begin(t.Context(), r)
	defer end()
	for text, want := range map[string]string{
		"x1y":                                    "…",
		"no x1y":                                 "no …",
		"x1y: x1y,x1y (x1y)":                     "…: …,… (…)",
		`token "x1y" of user:x1y/x1y, [x1y x1y]`: `token "…" of user:…/…, [… …]`,
		"x1yx1y, ax1y, x1y0":                     "x1yx1y, ax1y, x1y0",
		"häx1y…x1yß":                             "hä………ß", // a letter that is not ASCII ends a word
		"pw=pw&pwd=1":                            "…=…&pwd=1",
		"203 of 2030, 5 of 15":                   "… of 2030, … of 15",
		"203.0.113.5 is not in 203.0.113.0/5, but [2001:db8::5], 5::/16.": "203.0.113.5 is not in 203.0.113.0/5, but [2001:db8::5], 5::/16.",
		"203.0.113.5.":            "203.0.113.5.",
		"203.0.113.5.6":           "….0.113.….6",
		"id:203, 203:":            "id:…, …:",
		"den en end":              "den … end",
		"a-b a-bc":                "… a-bc",
		`ab"c, "ab\"c"`:           `…, "…"`,
		"a credential":            "a credential",
		"":                        "",
		strings.Repeat("5.", 200): strings.Repeat("….", 200),
	} {
		if got := run.Text(errors.New(text), 1000); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
