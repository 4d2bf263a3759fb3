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

// Credentials are taken out of errors, also where these quote them.
func TestErrorsThatQuoteCredentials(t *testing.T) {
	r := &http.Request{Header: http.Header{
		"Authorization": {"Bearer a-token", `Bearer canary"of\a token`}, "Cookie": {`session="a-session"; short=x5x5; two=x5; e=1; l=long-secret; m=long-secret-tail`}, "Proxy-Authorization": {"Basic dXNlcjphLXBhc3N3b3Jk"},
	}}
	_, run, end := Begin(t.Context(), r)
	defer end()
	step := run.Open(key)
	run.Secret("a-key-in-a-header", "the key")
	for text, want := range map[string]string{
		"a-token": "…", "Bearer a-token": "…", "no a-session!": "no …!", "dXNlcjphLXBhc3N3b3Jk": "…", "(a-key-in-a-header)": "(…)",
		`canary"of\a token`: "…", fmt.Sprintf("%q", `canary"of\a token`): `"…"`,
		"of x5x5": "of …", "x5, 1": "x5, 1", "": "", "long-secret-tail, long-secret": "…, …",
	} {
		if got := run.Text(errors.New(text), 200); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	run.Note("%v and %s", errors.New("with a-token"), strings.Repeat("x", 300)+"\x1b")
	run.Close(step, "", errors.New("a-token"))
	found := run.Took()
	if found.Err != "…" || len(found.Notes) != 2 || found.Notes[1] != "with … and "+strings.Repeat("x", 256)+"…" {
		t.Errorf("%+v", found)
	}
	if run.Took() != nil {
		t.Error("a step is taken twice")
	}
}

// A request with thousands of credentials is explained at once, and shows none of them.
func TestARequestWithManySecrets(t *testing.T) {
	r := &http.Request{Header: make(http.Header)}
	for i := range 10_000 {
		r.Header.Add("Cookie", fmt.Sprintf("a=s%d; b=%d", i, i))
	}
	_, run, end := Begin(t.Context(), r)
	defer end()
	if text := run.Text(errors.New("before s9999 after"), 100); text != "before … after" {
		t.Error(text)
	}
}

// Only contexts of an explained request have a run, and only while it is explained.
func TestOfRequest(t *testing.T) {
	r := (&http.Request{}).WithContext(t.Context())
	ctx, run, end := Begin(r.Context(), r)
	explained := r.WithContext(ctx)
	if OfRequest(explained) != run || OfRequest(r) != nil || virtualtime.Sleep(ctx, 0) {
		t.Error("while it is explained")
	}
	end()
	if OfRequest(explained) != nil {
		t.Error("after it was explained")
	}
}

// What a function has started and not waited for neither hides how the key was found nor takes its place.
func TestStepsThatGoOn(t *testing.T) {
	r := (&http.Request{}).WithContext(t.Context())
	_, run, end := Begin(r.Context(), r)
	defer end()
	first := run.Open(TestOfRequest)
	stray := run.Open(TestOfRequest)
	run.Close(first, "first", nil)
	run.Close(stray, "stray", nil)
	if step := run.Took(); step == nil || step.Key != "first" {
		t.Errorf("took %+v, want the first", step)
	}
	run.Open(TestOfRequest) // of the stray one
	run.Took()
	second := run.Open(TestOfRequest)
	run.Close(second, "second", nil)
	if step := run.Took(); step == nil || step.Key != "second" {
		t.Errorf("took %+v, want the second", step)
	}
}
