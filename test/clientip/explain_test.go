package clientip_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// What an explanation may say about an entry of a forwarding header, or about a line of an edge's.
const (
	saysClient    = "the client"
	saysProxy     = "a proxy"
	saysInvalid   = "not an address"
	saysUnread    = "not believed"
	saysNotSingle = "not one address"
)

// A reading is what an explanation says about the entries of a header, the nearest one first.
type reading struct {
	says  []string
	texts []string
	rest  bool // there may be more entries, which are not believed
}

// refReading reads the header that m's ClientIP reads, from left to right. ok says that it reads one of r.
func (m trustModel) refReading(r *http.Request) (want reading, ok bool) {
	byPeer := len(m.cfg.TrustedProxies) > 0 && refOurs(refPeer(r)) || m.cfg.TrustUnix && refUnix(r)
	if m.cfg.EdgeHeader != "" {
		if byPeer || len(m.cfg.TrustedProxies) == 0 && !m.cfg.TrustUnix {
			return refEdgeReading(r), true
		}
		return reading{}, false
	}
	if m.cfg.ProxyCount == 0 && !byPeer {
		return reading{}, false
	}
	entries := refXForwardedFor(r)
	if m.cfg.Header == "Forwarded" {
		entries = refForwarded(r)
	}
	decides := -1 // all before it are not believed, and all after it are proxies
	for i, e := range entries {
		nearer := len(entries) - i // counted from the right
		switch {
		case m.cfg.ProxyCount > 0 && nearer == m.cfg.ProxyCount,
			m.cfg.ProxyCount > 0 && nearer < m.cfg.ProxyCount && !e.IsValid(),
			m.cfg.ProxyCount == 0 && (i == 0 || len(m.cfg.TrustedProxies) == 0 || !refOurs(e)):
			decides = i
		}
	}
	for i, e := range slices.Backward(entries) {
		says := saysProxy
		switch {
		case i < decides:
			says = saysUnread
		case i == decides && e.IsValid():
			says = saysClient
		case i == decides:
			says = saysInvalid
		}
		want.says = append(want.says, says)
	}
	if m.cfg.Header != "Forwarded" {
		want.texts, want.rest = refTexts(r.Header["X-Forwarded-For"])
	}
	return want, true
}

// refTexts returns the elements of lines from the right. If one is long, or if there are many, the list ends before it,
// and is not complete.
func refTexts(lines []string) (texts []string, more bool) {
	elements := strings.Split(strings.Join(lines, ","), ",")
	for i, s := range slices.Backward(elements) {
		if len(s) > 256 || len(elements)-i > 64 {
			return texts, true
		}
		if s = strings.Trim(s, " \t"); s != "" {
			texts = append(texts, s)
		}
	}
	return texts, false
}

func refEdgeReading(r *http.Request) (want reading) {
	lines := slices.Clone(r.Header[edgeHeader])
	slices.Reverse(lines)
	want.texts, want.rest = lines[:min(len(lines), 64)], len(lines) > 64
	for i := range want.texts {
		want.says = append(want.says, saysUnread)
		if i == 0 {
			want.says[0] = saysClient
			if e := refEdge(r); !e.IsValid() {
				want.says[0] = saysNotSingle
			}
		}
	}
	return want
}

// readingOf returns what notes say, for an edge's header with that many lines.
func readingOf(t *testing.T, notes []string, lines int) (got reading) {
	for _, note := range notes {
		text, isEntry := strings.CutPrefix(note, fmt.Sprintf("entry %d, \"", len(got.says)+1))
		if !isEntry {
			_, text, isEntry = strings.Cut(note, fmt.Sprintf(" of %d, \"", lines))
		}
		if !isEntry {
			continue
		}
		end := strings.LastIndex(text, "\": ")
		if end < 0 {
			t.Fatalf("no verdict in %q", note)
		}
		all := []string{saysClient, saysProxy, saysInvalid, saysUnread, saysNotSingle}
		i := slices.IndexFunc(all, func(says string) bool { return strings.HasPrefix(text[end+3:], says) })
		if i < 0 {
			t.Fatalf("an unknown verdict in %q", note)
		}
		got.says, got.texts = append(got.says, all[i]), append(got.texts, text[:end])
	}
	return got
}

func (got reading) check(t *testing.T, model string, want reading) {
	t.Helper()
	if want.rest { // they may be one entry or many, and none is believed
		for len(got.says) > len(want.says) && got.says[len(got.says)-1] == saysUnread {
			got.says = got.says[:len(got.says)-1]
		}
		for len(want.says) > len(got.says) && want.says[len(want.says)-1] == saysUnread {
			want.says = want.says[:len(want.says)-1]
		}
	}
	if !slices.Equal(got.says, want.says) {
		t.Errorf("%s: the entries are %.300q, want %.300q", model, got.says, want.says)
	}
	for i, text := range want.texts {
		if i < len(got.texts) && got.texts[i] != logtext.Show(text, 256) {
			t.Errorf("%s: entry %d is %q, want %q", model, i+1, got.texts[i], text)
		}
	}
}

// FuzzExplainedClientIP compares what an explanation says about each entry of a header with another reading of it. It
// takes the lines of each header as lines, and an empty text as no header.
func FuzzExplainedClientIP(f *testing.F) {
	var finders []ratelimit.KeyFunc
	for _, m := range trustModels {
		finders = append(finders, ratelimit.ClientIP(m.cfg))
	}
	for _, c := range clientIPCases {
		f.Add(c.peer, c.xff, c.forwarded, c.edge)
	}
	f.Fuzz(func(t *testing.T, peer, xff, forwarded, edge string) {
		r := requestWith()
		r.RemoteAddr = peer
		for name, lines := range map[string]string{"X-Forwarded-For": xff, "Forwarded": forwarded, edgeHeader: edge} {
			if lines != "" {
				r.Header[name] = strings.Split(lines, "\n")
			}
		}
		for i, m := range trustModels {
			step := found(t, finders[i], r)
			if key, err := finders[i](r); step.By != "ClientIP" || step.Key != key || (step.Err != "") != (err != nil) {
				t.Errorf("%s: %s has %q and %q, and Handler %q and %v", m.name, step.By, step.Key, step.Err, key, err)
			}
			want, reads := m.refReading(r)
			readingOf(t, step.Notes, len(r.Header[edgeHeader])).check(t, m.name, want)
			for name := range r.Header {
				ignored := slices.ContainsFunc(step.Notes, func(note string) bool { return strings.HasPrefix(note, name+" is ignored: ") })
				if ignored == (reads && name == m.reads()) {
					t.Errorf("%s: %s is ignored: %v", m.name, name, ignored)
				}
			}
		}
	})
}

// reads returns the name of the header that m reads.
func (m trustModel) reads() string {
	switch {
	case m.cfg.EdgeHeader != "":
		return edgeHeader
	case m.cfg.Header != "":
		return m.cfg.Header
	default:
		return "X-Forwarded-For"
	}
}
