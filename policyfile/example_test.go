package policyfile_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

func ExampleParse() {
	const text = `
version: 1
policies:
  - name: api
    key: {first_of: [membrs, remote_ip]}
    limit: 0/1m
    max-wait: 5s
`
	registry := policyfile.Registry{
		Keys: map[string]ratelimit.KeyFunc{"members": ratelimit.Header("X-Member")},
	}
	_, err := policyfile.Parse("limits.yaml", []byte(text), registry)
	for _, fault := range err.(policyfile.Faults) {
		fmt.Println(fault.Line, fault.Field)
	}
	// Output:
	// 5 policies[0].key.first_of[0]
	// 6 policies[0].limit
	// 7 policies[0].max-wait
}

func ExampleFile_Handler() {
	const text = `
version: 1
policies:
  - {name: api, key: remote_ip, limit: 60/1m}
  - {name: login, key: remote_ip, limit: 1/15m burst 2, on: [POST /login]}
`
	file, err := policyfile.Parse("limits.yaml", []byte(text), policyfile.Registry{})
	if err != nil {
		panic(err)
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: file.Everywhere()}))
	defer limiter.Close()
	handler := file.Handler(limiter, http.NotFoundHandler())
	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 404
	// 404
	// 429
}

func ExampleWatch() {
	registry := policyfile.Registry{
		Keys: map[string]ratelimit.KeyFunc{"members": ratelimit.Header("X-Member")},
	}
	run := func(ctx context.Context, login http.Handler) error {
		file, err := policyfile.Load("limits.yaml", registry)
		if err != nil {
			return err
		}
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: file.Everywhere()}))
		mux := http.NewServeMux()
		mux.Handle("POST /login", limiter.Limit(file.Named("login")...)(login))
		if err := policyfile.Watch(ctx, limiter, "limits.yaml", registry, policyfile.WatchConfig{}); err != nil {
			return err
		}
		return http.ListenAndServe(":8080", limiter.Handler(mux))
	}
	_ = run
}
