package main

import (
	"context"
	"fmt"
)

// growPolicies measures growing numbers of policies in a call. All are charged for one key.
func growPolicies(ctx context.Context, p growthPlan) (growthTable, error) {
	t := growthTable{
		title:   "Policies of a request",
		note:    fmt.Sprintf("Limiter.TakeAll, %s callers, %s keys, one server. A decision is about all policies.", thousands(growthCallers), thousands(manyKeys)),
		columns: redisColumns("policies"),
	}
	var g grower
	defer g.close()
	d, err := g.deploy(ctx, single, 1)
	if err != nil {
		return t, err
	}
	for _, policies := range p.upTo(2, 1, 2, 3, 4, 6, 8) {
		w := workload{callers: growthCallers, keys: manyKeys, limits: growthLimits(policies), allowed: true, ours: limiterTakeAll}
		if err := g.add(ctx, policies, w, d, nil); err != nil {
			return t, err
		}
	}
	err = g.measure(ctx, p.plan)
	t.rows = g.rows
	return t, err
}
