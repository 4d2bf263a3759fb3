// Package explain holds what [github.com/go-tokenbucket/ratelimit.Limiter.Explain] finds out about a request: which
// limits would apply to it, why, and how it would be answered. The package is experimental: a minor release may change it.
//
//	r := httptest.NewRequest("GET", "https://api.example.com/items/7", nil)
//	r.RemoteAddr = "10.0.0.7:51234"
//	r.Header.Set("X-Forwarded-For", "203.0.113.9")
//	fmt.Println(limiter.Explain(r))
//
// # Text and JSON
//
// [Explanation.String] returns a text for people. The types have JSON tags: the JSON is the one of the admin page and of
// the command ratelimit explain.
//
// # What is not shown
//
// Texts that come from a request are cut and escaped. Tokens, cookies and other credentials are left out of the steps and
// errors of an explanation. In place of a token, there are its length and the first bytes of its SHA-256. Keys are shown.
// If a function of the program returns a credential as the key, the explanation shows it, as the store does.
package explain

import (
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// An Explanation is what a limiter would do with a request, and why.
type Explanation struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	Host   string    `json:"host,omitempty"`
	Path   string    `json:"path"`
	Peer   string    `json:"peer,omitempty"`  // the RemoteAddr of the request
	Route  string    `json:"route,omitempty"` // its route, as in the key of Route; "" if none was given

	// Limiters are the calls of Handler and Limit that the request would meet, the outermost first, and then all
	// others of Limit.
	Limiters []Limiter `json:"limiters"`

	// Status is 429, 400, 403 or 503 if the request is refused, whatever Config.Deny and Config.Error write. It is 0 if
	// the request would reach the handler.
	Status int `json:"status"`

	// Header has the fields that the limiter would add to the answer, without those of Config.Deny and Config.Error.
	Header http.Header `json:"header"`

	// Degraded reports that a stand-in for the store would decide. Numbers of buckets are then rough.
	Degraded bool `json:"degraded,omitempty"`

	// Unknown lists, in sentences, what is not known and what to do about it.
	Unknown []string `json:"unknown,omitempty"`
}

// A Limiter is one call of Handler or Limit, with the policies that it enforces.
type Limiter struct {
	Mounted string `json:"mounted"`           // "Handler" or "Limit"
	Pattern string `json:"pattern,omitempty"` // that the request has matched when it comes here

	// Met reports that the request comes here. Otherwise its route is another one, or it is refused before.
	Met bool `json:"met"`

	// Routes are some of the routes of the requests that have come here.
	Routes []string `json:"routes,omitempty"`

	Skipped  bool     `json:"skipped,omitempty"` // by Config.Skip
	Allowed  bool     `json:"allowed"`
	Err      string   `json:"err,omitempty"` // why it could not decide
	Policies []Policy `json:"policies"`
}

// Outcomes of a [Policy].
const (
	Allowed    = "allowed"     // the bucket has enough tokens
	Denied     = "denied"      // the policy denies the request
	WouldDeny  = "would_deny"  // the policy is a Shadow, and the bucket has too few tokens
	NotCharged = "not_charged" // the bucket has enough tokens, and another policy refuses the request
	LeftOut    = "left_out"    // the policy does not apply, because it failed or is Optional
	Exempt     = "unlimited"   // its limit is Unlimited
	NoKey      = "no_key"      // the request has no key, which is answered 403
	BadRequest = "bad_request" // its key is malformed or ambiguous, which is answered 400
	Failed     = "failed"      // a function of the policy or the store failed, which is answered 503
)

// A Policy is one policy of a Limiter.
type Policy struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"`       // one of the constants
	Why     string `json:"why,omitempty"` // of Outcome, in a sentence

	Key   string `json:"key,omitempty"`
	Found *Step  `json:"found,omitempty"` // how the key was found, or why not; nil if no KeyFunc was asked

	Limit    string `json:"limit,omitempty"`     // such as "60/1m burst 10"
	LimitWhy string `json:"limit_why,omitempty"` // where it comes from: Policy.Limit, LimitFunc, a Reload, or an override
	Cost     int64  `json:"cost"`

	Shadow     bool `json:"shadow,omitempty"`
	Hidden     bool `json:"hidden,omitempty"`
	Optional   bool `json:"optional,omitempty"`
	FailClosed bool `json:"fail_closed,omitempty"`

	// Before is the bucket now, as a call with a cost of 0 would find it. After is the bucket as the request
	// would leave it. Both are nil if no bucket was read.
	Before *store.State `json:"before,omitempty"`
	After  *store.State `json:"after,omitempty"`
}

// A Step is one function that looked for a key.
type Step struct {
	By    string   `json:"by"`              // such as "FirstOf", "ClientIP" or "Claim sub", or the Go name of a function of the program
	Key   string   `json:"key,omitempty"`   // that it returned
	Err   string   `json:"err,omitempty"`   // that it returned
	Notes []string `json:"notes,omitempty"` // what it looked at, and what it made of that
	Tried []*Step  `json:"tried,omitempty"` // the functions that it asked, in that order
}
