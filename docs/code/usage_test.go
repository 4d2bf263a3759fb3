package code_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// A page "your plan"

func accountOf(ctx context.Context) (string, bool) {
	a, ok := ctx.Value(accountKey{}).(account)
	return a.id, ok
}

func withUsage(limiter *ratelimit.Limiter, authenticate func(http.Handler) http.Handler, items http.HandlerFunc) http.Handler {
	r := chi.NewRouter()
	account := ratelimit.ContextKey("account", accountOf)
	perMinute := ratelimit.Policy{Name: "minute", Key: account, Limit: ratelimit.PerMinute(60)}
	perMonth := ratelimit.Policy{Name: "month", Key: account, Limit: ratelimit.Quota(100_000, ratelimit.Month)}
	r.Use(authenticate)
	r.Handle("/usage", limiter.Usage(perMonth, perMinute))
	r.With(limiter.Limit(perMinute, perMonth)).Get("/items", items)
	return r
}

func TestRecipeUsage(t *testing.T) {
	h := withUsage(ratetest.Quiet(t), requireAPIKey(func(key string) (account, bool) { return account{key, "free"}, key != "" }), ratetest.OK)
	for range 3 {
		sendTo(h, "GET", "/items", "192.0.2.1", "", "X-Api-Key", "1")
	}
	for key, want := range map[string][]string{"1": {`"used":3,"remaining":99997`, `"used":3,"remaining":57`}, "2": {`"used":0,"remaining":100000`, `"used":0,"remaining":60`}} {
		text := sendTo(h, "GET", "/usage", "192.0.2.1", "", "X-Api-Key", key).Body.String()
		for _, part := range append(want, `"name":"month","limit":100000,"limit_text":"100000 per month"`, `"name":"minute"`, `"reset":`, `"window":60}`) {
			if !strings.Contains(text, part) {
				t.Errorf("account %s: %s; want %s", key, text, part)
			}
		}
	}
	if w := sendTo(h, "GET", "/usage", "192.0.2.1", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("%d without a key", w.Code)
	}
}
