package main

import (
	"context"
	"fmt"

	"github.com/go-tokenbucket/ratelimit"
)

// growReplicas measures growing numbers of replicas, with the same number of callers in all. With more replicas, the
// batches are smaller.
func growReplicas(ctx context.Context, p growthPlan) (growthTable, error) {
	t := growthTable{
		title: "Replicas on one Redis",
		note: fmt.Sprintf("%s callers in all, %s keys, one server. Each replica has a Limiter, a store and a client of its own, and an "+
			"equal part of the callers. They share one process, and so its scheduler and garbage collector.", thousands(growthCallers), thousands(manyKeys)),
		columns: redisColumns("replicas"),
	}
	var g grower
	defer g.close()
	d, err := g.deploy(ctx, single, 1)
	if err != nil {
		return t, err
	}
	for _, replicas := range p.upTo(2, 1, 2, 4, 8, 16) {
		w := workload{callers: growthCallers, keys: manyKeys, limits: growthLimits(1), allowed: true, ours: limiterTake}
		if err := g.add(ctx, replicas, w, d, replicated(replicas, w.ours.open)); err != nil {
			return t, err
		}
	}
	err = g.measure(ctx, p.plan)
	t.rows = g.rows
	return t, err
}

// replicated returns a function that opens several replicas. The callers are spread over them in turn.
func replicated(replicas int, open openFunc) openFunc {
	return func(ctx context.Context, d *deployment, limits []ratelimit.Limit) (openRedis, error) {
		var opened []openRedis
		closeAll := func() {
			for _, o := range opened {
				o.close()
			}
		}
		for range replicas {
			o, err := open(ctx, d, limits)
			if err != nil {
				closeAll()
				return openRedis{}, err
			}
			opened = append(opened, o)
		}
		callers := 0
		return openRedis{
			take: func() takeFunc {
				callers++
				return opened[callers%replicas].take()
			},
			close: closeAll,
		}, nil
	}
}
