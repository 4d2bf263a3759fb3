package main

import (
	"context"
	"fmt"
)

func init() { register(nearby, "http 256 connections", overHTTP) }

// httpKeys is the number of keys of the requests.
const httpKeys = 10_000

// overHTTP compares the number of requests that a server answers with and without the middleware on Redis. The client
// shares the cores with the server in both cases.
func overHTTP(ctx context.Context, p plan) (findings, error) {
	const connections = 256
	redis, err := startRedis(ctx)
	if err != nil {
		return findings{}, err
	}
	defer redis.stop()

	requests := make([][]byte, httpKeys)
	for i := range requests {
		requests[i] = httpRequest(fmt.Sprintf("member:%08d", i))
	}
	var conns []*httpConn
	defer func() {
		for _, c := range conns {
			c.conn.Close()
		}
	}()
	var crowds []*crowd
	for _, s := range []site{limitedSite, bareSite} {
		server, err := startSite(ctx, s, redis.address)
		if err != nil {
			return findings{}, fmt.Errorf("%v: %w", s, err)
		}
		defer server.stop()
		c, err := newCrowd(s.String(), connections, true, func(id int) (call, error) {
			conn, err := dialHTTP(server.address)
			if err != nil {
				return nil, err
			}
			conns = append(conns, conn)
			at := id * len(requests) / connections // each connection starts at another request
			return func(_ context.Context, n int) (bool, error) {
				limited, err := conn.get(requests[(at+n)%len(requests)])
				return limited == (s == limitedSite), err
			}, nil
		})
		if err != nil {
			return findings{}, err
		}
		crowds = append(crowds, c)
	}
	if err := measureCrowds(ctx, p, crowds...); err != nil {
		return findings{}, err
	}
	ours, bare := crowds[0], crowds[1]
	what := fmt.Sprintf("%s over HTTP, %s keys, %d connections, against %s: ", ours.name, thousands(httpKeys), connections, bare.name)
	return findings{rows: []row{
		{what + "requests", ours.rate, bare.rate, perSecond, atLeastTimes(0.55)},
		{what: what + "time, p50", ours: ours.p50, theirs: bare.p50, unit: duration},
		{what: what + "time, p99", ours: ours.p99, theirs: bare.p99, unit: duration},
	}}, nil
}
