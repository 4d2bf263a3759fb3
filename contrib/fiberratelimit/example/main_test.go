package main

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

func TestExample(t *testing.T) {
	address := testprogram.Start(t, "-addr", "127.0.0.1:0").Address(t)
	for i, password := range []string{"secret", "1", "2", "3", "4", "5", "6"} {
		response, err := http.PostForm("http://"+address+"/login", url.Values{"password": {password}})
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		want := map[int]int{0: 200, 6: 429}[i]
		if want == 0 {
			want = 401
		}
		if response.StatusCode != want {
			t.Errorf("login %d: status %d, want %d", i, response.StatusCode, want)
		}
	}
}
