package fleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/store"
)

var secret = []byte("0123456789abcdef")

// large returns a snapshot with more than fits: 64 policies with all histories, 40 keys and 50 blocks.
func large(random *rand.Rand) *Snapshot {
	at := time.Date(2026, 11, 26, 21, 0, 7, 0, time.UTC)
	history := func() Histories {
		h := Histories{NewHistory(at, 10*time.Second), NewHistory(at, time.Minute), NewHistory(at, 6*time.Minute)}
		for _, ranged := range []*History{h.TenMinutes, h.Hour, h.SixHours} {
			for i := range ranged.Allowed {
				ranged.Allowed[i], ranged.Denied[i] = 1+random.Int64N(1000), 1+random.Int64N(1000)
			}
			ranged.WouldDeny, ranged.Refused = nil, nil
		}
		return h
	}
	s := &Snapshot{
		Format: format, Host: "api-7f9c", Release: "v1.2.3", Started: at.Add(-time.Hour), At: at,
		Store: Store{Kind: "redis", State: "answers", Took: 1}, Engine: map[string]int64{"calls": 100}, Traffic: map[string]int64{"allowed": 100}, History: history(),
		KeySteps: Steps{10, at},
	}
	for i := range 64 {
		s.Policies = append(s.Policies, Policy{Name: fmt.Sprint("policy-", i), Limit: "60/1m", Last: Counts{Allowed: int64(i)}, History: history()})
	}
	for i := range 40 {
		s.Keys = append(s.Keys, Key{Policy: "policy-1", Name: Text(fmt.Sprint("ip:192.0.2.", i)), Count: int64(1000 - i), Requests: []int64{1, 2, 3}, Denials: []int64{0, 1, 2}})
	}
	for i := range 50 {
		s.Blocks = append(s.Blocks, Block{Policy: "policy-1", Name: Text(fmt.Sprint("ip:192.0.2.", i)), Until: at.Add(time.Hour)})
	}
	return s
}

// What does not fit is left out, the least important first, and counted.
func TestASnapshotFits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, policies := range []int{0, 1, 2, 5, 20, 64} {
		s := large(random)
		s.Policies = s.Policies[:policies]
		before, _ := json.Marshal(s)
		text, err := s.Encode()
		if err != nil || len(text) > store.MaxValueText {
			t.Fatalf("%d policies: %d bytes, %v", policies, len(text), err)
		}
		if after, _ := json.Marshal(s); string(after) != string(before) {
			t.Errorf("%d policies: Encode has changed the snapshot", policies)
		}
		got, err := Decode(text)
		if err != nil {
			t.Fatalf("%d policies: %v", policies, err)
		}
		out := got.LeftOut
		if len(got.Policies)+out.Policies != policies || len(got.Keys)+out.Keys != 40 || len(got.Blocks)+out.Blocks != 50 {
			t.Errorf("%d policies: %d policies, %d keys, %d blocks and %+v", policies, len(got.Policies), len(got.Keys), len(got.Blocks), out)
		}
		if out == (LeftOut{}) && !reflect.DeepEqual(got, s) {
			t.Errorf("%d policies: %+v, want %+v", policies, got, s)
		}
		if len(text) < store.MaxValueText*3/4 && out != (LeftOut{}) {
			t.Errorf("%d policies: %d bytes, and %+v", policies, len(text), out)
		}
		loudest := max(0, policies-1)
		for i, p := range got.Policies {
			if p.History.TenMinutes != nil && got.Policies[loudest].History.TenMinutes == nil {
				t.Errorf("%d policies: %d has a history, and the loudest has none", policies, i)
			}
		}
		t.Logf("%d policies: %d bytes, %+v", policies, len(text), out)
	}
}

func TestDecodeRefuses(t *testing.T) {
	const at = `"format":1,"at":"2026-11-26T21:00:00Z"`
	list := func(n int, entry string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(entry+",", n), ",") + "]"
	}
	for name, text := range map[string]string{
		"nothing":            ``,
		"another type":       `[]`,
		"no format":          `{"at":"2026-11-26T21:00:00Z"}`,
		"no time":            `{"format":1}`,
		"a megabyte":         `{` + at + `,"host":"` + strings.Repeat("x", 1<<20) + `"}`,
		"deep":               `{` + at + `,"x":` + strings.Repeat("[", 8000) + `}`,
		"no number":          `{` + at + `,"traffic":{"allowed":NaN}}`,
		"a fraction":         `{` + at + `,"traffic":{"allowed":0.5}}`,
		"too many":           `{` + at + `,"traffic":{"allowed":1125899906842625}}`,
		"a negative count":   `{` + at + `,"last":{"denied":-1}}`,
		"a negative step":    `{` + at + `,"history":{"1h":{"step":60,"end":"2026-11-26T21:00:00Z","allowed":[1,-1]}}}`,
		"61 steps":           `{` + at + `,"history":{"1h":{"step":60,"end":"2026-11-26T21:00:00Z","allowed":` + list(61, "1") + `}}}`,
		"no steps":           `{` + at + `,"history":{"1h":{"allowed":[1]}}}`,
		"a future":           `{` + at + `,"history":{"1h":{"step":60,"end":"2026-11-26T21:01:00Z","allowed":[1]}}}`,
		"the year 9999":      `{` + at + `,"started":"9999-01-01T00:00:00Z"}`,
		"the year 10000":     `{` + at + `,"started":"10000-01-01T00:00:00Z"}`,
		"a block for ever":   `{` + at + `,"blocks":[{"policy":"api","key":"k","until":"2126-11-26T21:00:00Z"}]}`,
		"another policy":     `{` + at + `,"policies":[{"name":"<b>"}]}`,
		"a policy twice":     `{` + at + `,"policies":[{"name":"api"},{"name":"api"}]}`,
		"a key of no policy": `{` + at + `,"keys":[{"key":"k"}]}`,
		"no key":             `{` + at + `,"keys":[{"policy":"api"}]}`,
		"a long key":         `{` + at + `,"keys":[{"policy":"api","key":"` + strings.Repeat("k", 2000) + `"}]}`,
		"steps of no time":   `{` + at + `,"keys":[{"policy":"api","key":"k","by_step":[1]}]}`,
		"many keys":          `{` + at + `,"keys":` + list(200, `{"policy":"a","key":"k"}`) + `}`,
		"the name of counts": `{` + at + `,"traffic":{"<b>":1}}`,
	} {
		if s, err := Decode(text); err == nil {
			t.Errorf("%s: %+v", name, s)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// Texts are safe to show. Keys are what they are.
func TestTextsAreShownAndKeysKept(t *testing.T) {
	hostile := "a\u202eb\x1b[31m\xff<b>"
	s := &Snapshot{At: time.Now(), Host: hostile, Store: Store{Reason: strings.Repeat("é", 3000)}, Policies: []Policy{{Name: "api", Limit: `bad\u202e`}}}
	for _, key := range []string{hostile, "\x00", "{}", `{"b64":"x"}`, "ü"} {
		s.Keys = append(s.Keys, Key{Policy: "api", Name: Text(key)})
	}
	text, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(got.Host, "\u202e\x1b") || !utf8.ValidString(got.Store.Reason) || len(got.Store.Reason) > maxText+len("…") {
		t.Errorf("host %q, %d bytes of a reason", got.Host, len(got.Store.Reason))
	}
	if got.Policies[0].Limit != `bad\u202e` {
		t.Errorf("a text that was escaped is escaped again: %s", got.Policies[0].Limit)
	}
	for i, k := range got.Keys {
		if k.Name != s.Keys[i].Name {
			t.Errorf("key %q, want %q", k.Name, s.Keys[i].Name)
		}
	}
}

func TestSealedKeys(t *testing.T) {
	s := &Snapshot{Keys: []Key{{Policy: "api", Name: "member:7"}}, Blocks: []Block{{Policy: "api", Name: "member:7"}}}
	open := *s
	s.Seal(secret)
	if open.Keys[0].Name != "member:7" || s.Keys[0].Name != "" || s.Blocks[0].Name != "" || strings.Contains(string(s.Keys[0].Sealed), "member") {
		t.Errorf("%+v, and %+v", open, s)
	}
	if string(s.Keys[0].Sealed) != string(s.Blocks[0].Sealed) || string(s.Keys[0].Sealed) == string(Seal(secret, "member:8")) {
		t.Error("equal keys are sealed to other bytes, or other keys to equal ones")
	}
	s.Keys = append(s.Keys, Key{Policy: "api", Sealed: Seal([]byte("another secret 0"), "member:7")}, Key{Policy: "api", Sealed: []byte("short")})
	s.open(secret)
	if len(s.Keys) != 1 || s.Keys[0].Name != "member:7" || s.Keys[0].Sealed != nil || s.Blocks[0].Name != "member:7" || s.LeftOut != (LeftOut{Keys: 2}) {
		t.Errorf("%+v", s)
	}
	s.Seal(secret)
	if s.open(nil); len(s.Keys) != 0 || len(s.Blocks) != 0 || s.LeftOut != (LeftOut{Keys: 3, Blocks: 1}) {
		t.Errorf("without a secret: %+v", s)
	}
}

// Whatever is read can be merged, shifted and written again.
func FuzzDecode(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	s := large(random)
	s.Policies, s.Keys, s.Blocks = s.Policies[:2], s.Keys[:2], s.Blocks[:2]
	s.Seal(secret)
	s.Keys = append(s.Keys, Key{Policy: "api", Name: "\xff"})
	text, _ := s.Encode()
	f.Add(text)
	for _, text := range []string{`{"format":1,"at":"2026-11-26T21:00:00Z","policies":[{"name":"a","max_wait_ms":1125899906842624,"total":{"allowed":1125899906842624,"denied":1125899906842624}}]}`, `{"format":2,"at":"2026-11-26T21:00:00Z","host":"\u202e"}`, `{"format":1,"at":"2026-11-26T21:00:00+23:59","key_steps":{"step":1,"end":"1990-01-01T00:00:00Z"},"keys":[{"policy":"a","key":{"b64":"/w=="},"by_step":[1]}],"store":{"outages":[{}]}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Decode(text)
		if err != nil {
			return
		}
		got.shift(time.Hour)
		got.open(secret)
		all := Merge([]*Snapshot{s, got, got})
		for _, p := range all.Policies {
			if p.Total.Requests() < 0 || p.MaxWait.Duration() < 0 {
				t.Errorf("%+v", p)
			}
		}
		for _, h := range []*History{all.History.TenMinutes, all.History.Hour, all.History.SixHours} {
			if h != nil && h.longest() > HistorySteps {
				t.Errorf("%d steps", h.longest())
			}
		}
		if again, err := got.Encode(); err != nil && !got.Newer {
			t.Errorf("it cannot be written again: %v", err)
		} else if _, err := Decode(again); err != nil && !got.Newer {
			t.Errorf("it cannot be read again: %v", err)
		}
	})
}
