package ratelimit_test

import (
	"errors"
	"fmt"
	"net/http/httptest"

	"github.com/go-tokenbucket/ratelimit"
)

// IPv6 clients are counted by /64, because one client has that many addresses.
func ExampleRemoteIP() {
	key := ratelimit.RemoteIP()
	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(key(r))
	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:1234"
	fmt.Println(key(r))
	// Output:
	// ip:192.0.2.1 <nil>
	// ip:2001:db8:1:2::/64 <nil>
}

// The value of the header is hashed. A request without it has no key.
func ExampleHeader() {
	key := ratelimit.Header("X-Api-Key")
	r := httptest.NewRequest("GET", "/", nil)
	_, err := key(r)
	fmt.Println(errors.Is(err, ratelimit.ErrNoKey))
	r.Header.Set("X-Api-Key", "secret")
	fmt.Println(key(r))
	// Output:
	// true
	// header:x-api-key:K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols <nil>
}

// One bucket for all clients together, beside one for each client. A request that one of them denies takes nothing
// from the other.
func ExampleStatic() {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{
			{Name: "client", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(1)},
			{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.PerMinute(2), Hidden: true},
		},
	}))
	defer limiter.Close()
	handler := limiter.Handler(hello)
	for _, client := range []string{"192.0.2.1:1", "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.RemoteAddr = client
		handler.ServeHTTP(w, r)
		fmt.Println(client, w.Code)
	}
	// Output:
	// 192.0.2.1:1 200
	// 192.0.2.1:1 429
	// 192.0.2.2:1 200
	// 192.0.2.3:1 429
}

// Clients with an API key are counted by it, others by address.
func ExampleFirstOf() {
	key := ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP())
	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(key(r))
	r.Header.Set("X-Api-Key", "secret")
	fmt.Println(key(r))
	// Output:
	// ip:192.0.2.1 <nil>
	// header:x-api-key:K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols <nil>
}
