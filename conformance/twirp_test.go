package conformance

import (
	"context"
	"net/http"

	"github.com/twitchtv/twirp/example"
)

// hats is the path prefix of the service, and makeHat the path of its method.
const (
	hats    = "/twirp/twitch.twirp.example.Haberdasher/"
	makeHat = hats + "MakeHat"
)

// protobuf makes a request one with an empty message.
func protobuf(r *http.Request) { r.Header.Set("Content-Type", "application/protobuf") }

// A haberdasher makes hats by a function.
type haberdasher func(context.Context) error

func (f haberdasher) MakeHat(ctx context.Context, size *example.Size) (*example.Hat, error) {
	return &example.Hat{Size: size.GetInches()}, f(ctx)
}

func haberdashery(limit wrapper) http.Handler {
	server := example.NewHaberdasherServer(haberdasher(func(context.Context) error { return nil }))
	mux := http.NewServeMux()
	for _, method := range []string{"MakeHat"} {
		mux.Handle("POST "+server.PathPrefix()+method, limit(server))
	}
	mux.Handle(server.PathPrefix(), limit(server))
	return mux
}

func twirpTables() []routerTable {
	return []routerTable{{"Twirp", haberdashery, []routed{
		{"POST", makeHat, "POST " + makeHat},
		{"GET", makeHat, hats}, // answered 404 by the service
		{madeUp, makeHat, hats},
		{"POST", hats + "MadeUp", hats},
		{"POST", "/twirp/made.up/MakeHat", notLimited},
	}}}
}
