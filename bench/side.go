package main

// A side is the measurements of one limiter in a comparison.
type side struct {
	name string
	sideFigures
}

// sideFigures have a value for each round.
type sideFigures struct {
	rate     figure // calls per second
	p50, p99 figure
	redis    figure // CPU of all Redis servers, per call
	script   figure // the part of it in scripts, per call
	own      figure // CPU of this process, per call
	allocs   figure // of this process, per call
}

// sideSpent is the cost of the calls of a round that the callers do not measure themselves.
type sideSpent struct {
	redis redisUsage
	own   processUsage
}

// conclude adds the cost of a round of n calls to the figures.
func (f *sideFigures) conclude(spent sideSpent, n float64) {
	f.redis = append(f.redis, float64(spent.redis.cpu)/n)
	f.script = append(f.script, float64(spent.redis.script)/n)
	f.own = append(f.own, float64(spent.own.cpu)/n)
	f.allocs = append(f.allocs, float64(spent.own.mallocs)/n)
}
