package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/go-tokenbucket/ratelimit"
)

// patterns returns checks of Event.Route and of the key of Route, for each place where the limiter can be mounted.
func patterns(f Framework) (checks []check) {
	path := func(p string) string {
		if f.Path == nil {
			return p
		}
		return f.Path(p)
	}
	group, inner := Group{Prefix: "/v1/{tenant}"}, Group{Prefix: "/inner"}
	mount := Group{Prefix: "/mounted", Mount: true}
	for _, c := range []struct {
		name, method, path, want string
		groups                   []Group
	}{
		{"a route", "GET", "/items/5", "GET " + path("/items/{id}"), nil},
		{"a route of a group", "GET", "/v1/7/items/5", "GET " + path("/v1/{tenant}/items/{id}"), []Group{group}},
		{"a route of a nested group", "GET", "/v1/7/inner/items/5", "GET " + path("/v1/{tenant}/inner/items/{id}"), []Group{group, inner}},
		{"a route of a mount", "GET", "/mounted/items/5", "GET " + path("/mounted/items/{id}"), []Group{mount}},
		{"HEAD of GET", "HEAD", "/items/5", "unmatched", nil},
		{"404", "GET", "/forged", "unmatched", nil},
		{"405", "POST", "/items/5", "unmatched", nil},
		{"made-up method", "EVIL", "/items/5", "unmatched", nil},
	} {
		if own, ok := f.Patterns[c.name]; ok {
			c.want = own
		}
		add := func(place string, app App) {
			checks = append(checks, check{"pattern by " + place + ": " + c.name, func(e *env) {
				testPattern(e, app, c.method, c.path, c.want)
			}})
		}
		by := []ratelimit.Policy{{Name: "api", Key: ratelimit.Route(), Limit: ratelimit.PerHour(1000)}}
		route := Route{Method: "GET", Groups: c.groups, Path: "/items/{id}", Handler: ok}
		add("Handler", App{Handler: true, Routes: []Route{route}})
		if route.Policies = by; c.want != "unmatched" {
			add("Limit of a route", App{Routes: []Route{route}})
		}
		if len(c.groups) > 0 {
			route.Policies = nil
			route.Groups = slices.Clone(c.groups)
			route.Groups[len(c.groups)-1].Policies = by
			add("Limit of a group", App{Routes: []Route{route}})
		}
	}
	return checks
}

func testPattern(e *env, app App, method, path, want string) {
	var mu sync.Mutex
	var seen []string
	app.Limiter = e.limiter(ratelimit.Config{
		Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.Route(), Limit: ratelimit.PerHour(1000)}},
		Observe: func(_ context.Context, event *ratelimit.Event) {
			mu.Lock()
			defer mu.Unlock()
			key := ""
			if len(event.Results) == 1 {
				key = event.Results[0].Key
			}
			seen = append(seen, fmt.Sprintf("Route %q, key %q, error %v", event.Route, key, event.Err))
		},
	})
	a := e.send(method, e.serve(app)+path)
	mu.Lock()
	defer mu.Unlock()
	wanted := fmt.Sprintf("Route %q, key %q, error <nil>", want, "route:"+want)
	if len(seen) != 1 || seen[0] != wanted {
		e.Errorf("got %q, want one decision with %q; the status is %d", seen, wanted, a.status)
	}
}
