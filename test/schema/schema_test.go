// Package schema_test compares the JSON Schema of policy files with what policyfile.Parse takes.
package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

var registry = policyfile.Registry{
	Keys:    map[string]ratelimit.KeyFunc{"members": ratelimit.RemoteIP()},
	Limits:  map[string]func(*http.Request) ratelimit.Limit{"tier": func(*http.Request) ratelimit.Limit { return ratelimit.PerMinute(7) }},
	Costs:   map[string]func(*http.Request) int64{"pages": func(*http.Request) int64 { return 1 }},
	Unknown: []string{"elsewhere"},
}

func compile(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("limits.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("limits.schema.json") // checks it by the schema of draft 2020-12, too
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// values are what fields have, by the name of the field: what is right, nil, and what is wrong. Each text is in other fields,
// too.
var values = map[string][]any{
	"version": {1, nil, 2, 0},
	"name":    {"api", "login", "a/b:c.d-e_f", strings.Repeat("x", 63), nil, "a b", "", strings.Repeat("x", 64), "a\n"},
	"limit": {
		"60/1m", "1/ms", "1/5 days", "2/day", "3/7d", "3/d", "1/0.5h", "1/.5hours", "1/1.s", "1/2 min", "1/1h30m", "007/secs", "60/1m burst 10", "1/2μs", "unlimited",
		"5 per month", "5 per hour America/Argentina/Buenos_Aires", "3 at once", "020 at once", nil,
		"1/μs", "1/ m", "1/1 m", "1/7 d", "1/1.5d", "0/1m", "60/1m burst 0", "60/1m burst ", "60 /1m", " 60/1m", "60/1m\n", "60", "-1/s", "1/-1s", "1/1", "1/1.1.1s", "1/.s",
		"1/h30m", "1/30mins", "1/1h30mins", "1/s burst 2 burst 3", "5 per year", "5 per day ", "5 per day burst 2",
		"0 at once", "3 at  once", "3 at once ", "-3 at once", "at once", "3 at once burst 2", "3 concurrent",
	},
	"limit_func":      {"tier", "elsewhere", nil, "nowhere", ""},
	"cost":            {"pages", "elsewhere", nil, "nowhere"},
	"settle":          {"failed_logins", "elsewhere", nil, "tier"},
	"max_wait":        {"500ms", "0", "1h1m", "+1s", ".5s", nil, "-1s", "1", "", "1 s", "1d", "1s\n"},
	"lock_for":        {"15m", "24h", "0", nil, "day"},
	"optional":        {true, false, nil},
	"fail_closed":     {true, false, nil},
	"shadow":          {true, false, nil},
	"hidden":          {true, false, nil},
	"router":          {"servemux", "chi", nil, "gin"},
	"key":             {"remote_ip", "route", "members", "elsewhere", nil, "nowhere", "client_ip", "header", "join"},
	"header":          {"X-Forwarded-For", "x-forwarded-for", "Forwarded", nil, "X-Api-Key", "Host", "hOST", "a b", "", "é"},
	"edge_header":     {"X-Real-IP", "", nil, "host", "a b"},
	"static":          {"all", "a b", nil, ""},
	"proxy_count":     {0, 1, 64, nil, 65, -1},
	"ipv6_bits":       {0, 32, 128, 64, nil, 31, 129},
	"trust_unix":      {true, false, nil},
	"trusted_proxies": {[]any{"10.0.0.0/8", "fd00::/8"}, []any{"10.0.0.1/32"}, nil, []any{"10.0.0.1"}, []any{"::ffff:10.0.0.0/104"}, []any{"x"}, []any{}},
	"on":              {[]any{"GET /a"}, []any{"POST /c/{id}", "/d"}, nil, []any{"/b", "/b"}, []any{"e"}, []any{}, []any{"/f\n"}},
	"routes":          {[]any{"GET /g"}, []any{}, []any{"/h", "/h"}, nil, []any{"h"}},
	"removed":         {[]any{"old"}, []any{}, []any{""}, nil, []any{"api"}},
	"policies":        {nil, "x"},
	"first_of":        {nil, "x"},
	"join":            {nil, "x"},
	"client_ip":       {nil, "x"},
	"unknown":         {nil, "x"},
}

// A writer writes random files. Most are right, and the others have one fault or several.
type writer struct {
	*rand.Rand
	names []string // of values, in order
}

// one returns one of the right values of a field, and sometimes a wrong one.
func (w *writer) one(field string) any {
	all := values[field]
	end := slices.IndexFunc(all, func(v any) bool { return v == nil })
	right, wrong := all[:end], all[end+1:]
	if len(wrong) > 0 && (len(right) == 0 || w.IntN(40) == 0) {
		right = wrong
	}
	v := right[w.IntN(len(right))]
	if list, ok := v.([]any); ok {
		return slices.Clone(list)
	}
	return v
}

// some sets some of fields.
func (w *writer) some(m map[string]any, fields ...string) map[string]any {
	for _, f := range fields {
		if w.IntN(4) == 0 {
			m[f] = w.one(f)
		}
	}
	return m
}

func (w *writer) key(depth int) any {
	switch form := []string{"client_ip", "header", "static", "first_of", "join", "", "", ""}[w.IntN(8)]; {
	case form == "" || depth > 2:
		return w.one("key")
	case form == "client_ip":
		return map[string]any{form: w.some(map[string]any{}, "trusted_proxies", "trust_unix", "proxy_count", "header", "edge_header", "ipv6_bits")}
	case form == "first_of" || form == "join":
		var keys []any
		for range 1 + w.IntN(2) {
			keys = append(keys, w.key(depth+1))
		}
		return map[string]any{form: keys}
	default:
		return map[string]any{form: w.one(form)}
	}
}

func (w *writer) file() any {
	var policies []any
	for i := range 1 + w.IntN(2) {
		p := map[string]any{"name": []string{"api", "login"}[i], "key": w.key(0), "limit": w.one("limit")}
		policies = append(policies, w.some(p, "name", "on", "limit_func", "cost", "settle", "max_wait", "lock_for", "optional", "fail_closed", "shadow", "hidden"))
	}
	f := w.some(map[string]any{"version": 1, "policies": policies}, "routes", "router", "removed")
	if w.IntN(2) == 0 {
		w.spoil(f)
	}
	return f
}

// spoil changes one part of a file. A scalar stays a text, a number or a flag: Parse reads "1" as 1.
func (w *writer) spoil(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if w.IntN(4) == 0 {
			break
		}
		field := w.names[w.IntN(len(w.names))]
		if here := slices.Sorted(maps.Keys(v)); len(here) > 0 && w.IntN(4) > 0 {
			field = here[w.IntN(len(here))]
		}
		switch old, has := v[field]; {
		case !has:
			v[field] = w.one(field)
		case w.IntN(4) == 0:
			delete(v, field)
		default:
			v[field] = w.spoil(old)
		}
		return v
	case []any:
		if len(v) == 0 || w.IntN(4) == 0 {
			break
		}
		i := w.IntN(len(v))
		if v[i] = w.spoil(v[i]); w.IntN(8) == 0 {
			return append(v, v[i])
		}
		return v
	case string:
		if w.IntN(2) == 0 {
			break
		}
		for {
			all := values[w.names[w.IntN(len(w.names))]]
			if text, ok := all[w.IntN(len(all))].(string); ok {
				return text
			}
		}
	case int:
		return []int{-1, 0, 1, 2, 31, 32, 64, 65, 128, 129}[w.IntN(10)]
	}
	return []any{nil, []any{}, map[string]any{}, []any{"x"}, map[string]any{"x": 1}}[w.IntN(5)]
}

// beyond are the faults that no schema can see: of other fields, of names of functions, of the router and of ranges.
var beyond = regexp.MustCompile(`has it already: must differ|is in policies\[|conflicts with |must not be set together|must come with|` +
	`must not be negative|must be 0 where requests wait|must not be set beside|must be from 1µs|time zone|must be a network|must be written as IPv4|` +
	`must be like "GET /items/\{id\}"|must say which proxies to trust`)

func TestSchemaIsWhatParseTakes(t *testing.T) {
	schema := compile(t, policyfile.Schema(registry))
	w := &writer{rand.New(rand.NewPCG(1, 2)), slices.Sorted(maps.Keys(values))}
	taken, refused, passed := 0, 0, 0
	for range testsize.Of(4_000, 40_000) {
		text, err := json.Marshal(w.file())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		invalid := schema.Validate(doc)
		_, err = policyfile.Parse("limits.json", text, registry)
		var faults policyfile.Faults
		errors.As(err, &faults)
		for _, fault := range faults {
			if invalid == nil && !beyond.MatchString(fault.Text) {
				t.Fatalf("the schema takes\n%s\nand Parse does not: %v", text, fault)
			}
		}
		if invalid != nil && err == nil {
			t.Fatalf("Parse takes\n%s\nand the schema does not: %v", text, invalid)
		}
		switch {
		case err == nil:
			taken++
		case invalid != nil:
			refused++
		default:
			passed++
		}
	}
	t.Logf("%d files were taken by both, %d refused by both, and %d had only faults that a schema cannot see", taken, refused, passed)
	if all := taken + refused + passed; min(taken, refused) < all/4 {
		t.Error("these are too few of the one or the other")
	}
}

// Without names, a file may use any. Those that are built in are no functions.
func TestSchemaOfAnyNames(t *testing.T) {
	schema := compile(t, policyfile.Schema(policyfile.Registry{}))
	for policy, takes := range map[string]bool{
		`{"name": "api", "key": "members", "limit_func": "tier", "cost": "pages", "settle": "bytes"}`: true,
		`{"name": "api", "key": "remote_ip", "limit": "60/1m", "settle": "failed_logins"}`:            true,
		`{"name": "api", "key": "client_ip", "limit": "60/1m"}`:                                       false,
		`{"name": "api", "key": "", "limit": "60/1m"}`:                                                false,
		`{"name": "api", "key": "route", "limit_func": ""}`:                                           false,
		`{"name": "api", "key": "route"}`:                                                             false,
	} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"version": 1, "policies": [` + policy + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); (err == nil) != takes {
			t.Errorf("%s: %v", policy, err)
		}
	}
}
