package main

import (
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

func TestExample(t *testing.T) {
	base := "http://" + testprogram.Start(t, "-addr", "127.0.0.1:0").Address(t)
	for i, password := range []string{"sesame", "sesame", "sesame", "sesame", "sesame", "sesame", "1", "2", "3", "4", "5", "6"} {
		response, err := http.PostForm(base+"/login", url.Values{"password": {password}})
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		want := 401
		switch {
		case i < 6:
			want = 200
		case i == 11:
			want = 429
		}
		if response.StatusCode != want {
			t.Errorf("login %d: status %d, want %d", i+1, response.StatusCode, want)
		}
	}
	response, err := http.Get(base + "/items/5")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != `{"id":"5","requestsLeft":29}` {
		t.Errorf("body %q, error %v", body, err)
	}
}
