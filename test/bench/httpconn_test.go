package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHTTPConnReadsOneAnswerAfterAnother(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get(keyHeader) {
		case "refused":
			w.WriteHeader(http.StatusTooManyRequests)
		case "limited":
			w.Header().Set("X-RateLimit-Remaining", "5")
		}
		w.Write(greeting)
	}))
	defer server.Close()
	conn, err := dialHTTP(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.conn.Close()
	for _, key := range []string{"limited", "not", "limited"} {
		limited, err := conn.get(httpRequest(key))
		if err != nil || limited != (key == "limited") {
			t.Errorf("%s: limited is %v, error %v", key, limited, err)
		}
	}
	if _, err := conn.get(httpRequest("refused")); err == nil {
		t.Error("a status of 429 is no error")
	}
}
