package main

import (
	"context"
	"fmt"
)

// growthCallers is the number of concurrent callers in all tables.
const growthCallers = 1024

// A grower measures several sizes of something in Redis, in turn.
type grower struct {
	rows   []growthRow
	crowds []*crowd
	closes []func()
}

// add opens w.ours on d for a size, by open if that is not nil, and takes the first token of every key.
func (g *grower) add(ctx context.Context, size int, w workload, d *deployment, open openFunc) error {
	if open == nil {
		open = w.ours.open
	}
	opened, err := open(ctx, d, w.limits)
	if err != nil {
		return err
	}
	g.closes = append(g.closes, opened.close)
	opened.take = ownContexts(opened.take)
	keys, draws := w.draw()
	if err := w.fill(ctx, opened, keys); err != nil {
		return err
	}
	c, err := w.crowd(namedRedis{fmt.Sprint(size), opened}, draws)
	if err != nil {
		return err
	}
	c.usage = d.usage
	g.rows = append(g.rows, growthRow{size: size})
	g.crowds = append(g.crowds, c)
	return nil
}

// deploy is the function of that name. The deployment ends with g.
func (g *grower) deploy(ctx context.Context, of shape, servers int) (*deployment, error) {
	d, err := deploy(ctx, of, servers, advised)
	if err == nil {
		g.closes = append(g.closes, d.stop)
	}
	return d, err
}

// measure fills in the rows.
func (g *grower) measure(ctx context.Context, p plan) error {
	if err := measureCrowds(ctx, p, g.crowds...); err != nil {
		return err
	}
	for i, c := range g.crowds {
		g.rows[i].side = c.side
	}
	return nil
}

// close ends everything, the latest first.
func (g *grower) close() {
	for len(g.closes) > 0 {
		last := len(g.closes) - 1
		g.closes[last]()
		g.closes = g.closes[:last]
	}
}
