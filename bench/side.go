package main

// A side is what one limiter measured in a comparison.
type side struct {
	name string
	sideFigures
}

// sideFigures have a value for each round.
type sideFigures struct {
	rate     figure // calls a second
	p50, p99 figure
	redis    figure // CPU of all Redis servers, a call
	script   figure // of it in scripts, a call
	own      figure // CPU of this process, a call
	allocs   figure // of this process, a call
}

// sideSpent is what the calls of a round took, besides what their callers measure.
type sideSpent struct {
	redis redisUsage
	own   processUsage
}

// conclude adds what a round of n calls took to the figures.
func (f *sideFigures) conclude(spent sideSpent, n float64) {
	f.redis = append(f.redis, float64(spent.redis.cpu)/n)
	f.script = append(f.script, float64(spent.redis.script)/n)
	f.own = append(f.own, float64(spent.own.cpu)/n)
	f.allocs = append(f.allocs, float64(spent.own.mallocs)/n)
}
