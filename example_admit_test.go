package ratelimit_test

import (
	"fmt"
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

// A login is limited by the user name, which only the handler finds in the form. What succeeds is given back.
func ExampleLimiter_Admit() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer limiter.Close()
	perUser := ratelimit.Policy{Name: "user", Limit: ratelimit.PerHour(2), FailClosed: true}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := "user:" + r.FormValue("user")
		if !limiter.Admit(w, r, ratelimit.Charge{Policy: perUser, Key: key}) {
			return // it is answered
		}
		if r.FormValue("password") != "sesame" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		if _, err := limiter.Refund(r.Context(), perUser, key, 1); err != nil {
			fmt.Println(err)
		}
		fmt.Fprintln(w, "welcome")
	})
	for _, form := range []string{"user=ann&password=sesame", "user=ann&password=1", "user=ann&password=2", "user=ann&password=sesame", "user=bob&password=sesame"} {
		request(login, "POST", "/login?"+form)
	}
	// Output:
	// POST /login?user=ann&password=sesame 200
	// POST /login?user=ann&password=1 401
	// POST /login?user=ann&password=2 401
	// POST /login?user=ann&password=sesame 429
	// POST /login?user=bob&password=sesame 200
}
