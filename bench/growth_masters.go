package main

import (
	"context"
	"fmt"
)

// growMasters lets the number of masters of a Cluster grow.
func growMasters(ctx context.Context, p growthPlan) (growthTable, error) {
	t := growthTable{
		title: "Masters of a Cluster",
		note: fmt.Sprintf("%s callers, %s keys, a Cluster for each line. All masters share the cores: more of them show what is lost "+
			"by smaller batches, not what is won by more cores.", thousands(growthCallers), thousands(manyKeys)),
		columns: redisColumns("masters"),
	}
	var g grower
	defer g.close()
	for _, masters := range p.upTo(3, 1, 2, 3, 4, 6) {
		d, err := g.deploy(ctx, cluster, masters)
		if err != nil {
			return t, err
		}
		w := workload{callers: growthCallers, keys: manyKeys, limits: growthLimits(1), allowed: true, ours: limiterTake}
		if err := g.add(ctx, masters, w, d, nil); err != nil {
			return t, err
		}
	}
	err := g.measure(ctx, p.plan)
	t.rows = g.rows
	return t, err
}
