package main

import "testing"

func TestGrowthTableHasALineForEachSize(t *testing.T) {
	table := growthTable{
		title:   "Keys",
		note:    "A note.",
		columns: append(redisColumns("keys"), extraColumn("bytes", 0, inBytes)),
		rows: []growthRow{
			{1000, []float64{96}, side{sideFigures: sideFigures{rate: figure{3000, 1000, 2000}, p99: figure{5e6}, own: figure{1500}, redis: figure{900}}}},
			{1_000_000, []float64{97.4}, side{sideFigures: sideFigures{rate: figure{1e6}, p99: figure{500}, own: figure{1}, redis: figure{0}}}},
		},
	}
	const want = `## Keys

A note.

| keys | decisions | p99 | CPU of Go for each | CPU of Redis for each | bytes |
|--:|--:|--:|--:|--:|--:|
| 1,000 | 2.0 k/s | 5.0 ms | 1.5 µs | 900 ns | 96 bytes |
| 1,000,000 | 1.00 M/s | 500 ns | 1 ns | 0 ns | 97 bytes |
`
	if got := table.String(); got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
}

func TestShortGrowthEndsEarly(t *testing.T) {
	sizes := []int{1, 10, 100}
	if got := (growthPlan{}).upTo(10, sizes...); len(got) != 3 {
		t.Errorf("a full run has sizes %v, want %v", got, sizes)
	}
	if got := (growthPlan{short: true}).upTo(10, sizes...); len(got) != 2 {
		t.Errorf("a short run has sizes %v, want those up to 10", got)
	}
}

func TestGrowthLimitsFit(t *testing.T) {
	for i, l := range growthLimits(8) {
		if _, err := compile(l); err != nil {
			t.Errorf("limit %d: %v", i, err)
		}
	}
}
