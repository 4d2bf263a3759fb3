// Code generated from example/main_test.go of echo v4 by go test -update there; DO NOT EDIT.

package main

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

func TestTheExampleRuns(t *testing.T) {
	base := "http://" + testprogram.Start(t, "-addr", "127.0.0.1:0").Address(t)
	get := func(path string) (*http.Response, error) { return http.Get(base + path) }
	login := func(password string) func(string) (*http.Response, error) {
		return func(path string) (*http.Response, error) {
			return http.PostForm(base+path, url.Values{"password": {password}})
		}
	}
	for _, tt := range []struct {
		send   func(path string) (*http.Response, error)
		path   string
		status int
		body   string
	}{
		{login("secret"), "/login", 200, "welcome"},
		{login("wrong"), "/login", 401, "wrong password"},
		{login("wrong"), "/login", 401, "wrong password"},
		{login("secret"), "/login", 429, "quota-exceeded"},
		{get, "/hello", 200, "hello"},
	} {
		response, err := tt.send(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != tt.status || !strings.Contains(string(body), tt.body) {
			t.Fatalf("%s: %d %s, want %d with %q", tt.path, response.StatusCode, body, tt.status, tt.body)
		}
	}
	// The limit of all requests is for the address, whatever the path.
	for range 20 {
		response, err := get("/items/7")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("20 requests at once were not denied")
}
