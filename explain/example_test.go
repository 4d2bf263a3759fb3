package explain_test

import (
	"fmt"
	"net/http"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/store"
)

func ExampleExplanation_String() {
	e := &explain.Explanation{
		Method: "GET", Host: "api.example.com", Path: "/items/7", Peer: "203.0.113.9:51234",
		Limiters: []explain.Limiter{{Mounted: "Handler", Met: true, Allowed: true, Policies: []explain.Policy{{
			Name: "api", Outcome: explain.Allowed, Key: "ip:203.0.113.9", Limit: "60/1m burst 10", LimitWhy: "Policy.Limit", Cost: 1,
			Found: &explain.Step{By: "RemoteIP", Key: "ip:203.0.113.9", Notes: []string{
				"the TCP peer 203.0.113.9 is the client: no proxy is trusted",
			}},
			Before: &store.State{Allowed: true, Remaining: 10},
			After:  &store.State{Allowed: true, Remaining: 9, ResetAfter: 1e9},
		}}}},
		Header: http.Header{"X-Ratelimit-Remaining": {"9"}},
	}
	fmt.Println(e)
	// Output:
	// GET api.example.com/items/7
	//   from 203.0.113.9:51234
	//
	// It would reach the handler.
	//
	// 1. Handler: goes on
	//   policy api: allowed
	//     key     ip:203.0.113.9
	//     limit   60/1m burst 10 (Policy.Limit)
	//     cost    1
	//     before  10 tokens left, full
	//     after   9 tokens left, full in 1 s
	//     how the key was found:
	//       RemoteIP = ip:203.0.113.9
	//         - the TCP peer 203.0.113.9 is the client: no proxy is trusted
	//
	// Headers that the limiter adds to the answer:
	//   X-Ratelimit-Remaining: 9
}
