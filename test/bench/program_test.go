package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// Two rounds, the second one in reverse order. redis_rate is the first of the others, and has a target.
const sample = `rounds: 2
cpu: A & B
BenchmarkStore/10,000_keys,_1_caller/redisstore.Take-8   	     100	     1000 ns/op
BenchmarkStore/10,000_keys,_1_caller/redis_rate_v10-8   	     100	     1000 ns/op
BenchmarkLimiter/10,000_keys,_64_callers/Limiter.Take-8  	     100	     10000 ns/op	 1500 go-ns/op	  700000 p99-ns	   4 allocs/op
BenchmarkLimiter/10,000_keys,_64_callers/redis_rate_v10-8	     100	     40000 ns/op	 3000 go-ns/op	 2000000 p99-ns	  24 allocs/op
BenchmarkLimiter/10,000_keys,_64_callers/ulule/limiter_v3-8	     100	 5000 ns/op	 3000 go-ns/op	 2000000 p99-ns
PASS
BenchmarkLimiter/10,000_keys,_64_callers/ulule/limiter_v3-8	     100	 5000 ns/op	 3000 go-ns/op	 2000000 p99-ns
BenchmarkLimiter/10,000_keys,_64_callers/redis_rate_v10-8	     100	     25000 ns/op	 3200 go-ns/op	 2000000 p99-ns	  24 allocs/op
BenchmarkLimiter/10,000_keys,_64_callers/Limiter.Take-8  	     100	     12500 ns/op	 1700 go-ns/op	  900000 p99-ns	   5 allocs/op
`

func TestComparisons(t *testing.T) {
	r, err := parse(sample)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(r.comparisons()), "\n")[2:]
	want := []string{
		"| Limiter: 10,000 keys, 64 callers | Limiter.Take : redis_rate v10 | 80.0 k/s : 25.0 k/s | 3.20× (2.00–4.00) | 700.0 µs : 2.0 ms | 1.5 µs : 3.0 µs |  | 4 : 24 | 3.00×: reached |",
		"|  | Limiter.Take : ulule/limiter v3 | 80.0 k/s : 200 k/s | 0.40× (0.40–0.50) | 700.0 µs : 2.0 ms | 1.5 µs : 3.0 µs |  |  |  |",
		"| Store: 10,000 keys, 1 caller | redisstore.Take : redis_rate v10 | 1.00 M/s : 1.00 M/s | 1.00× |  |  |  |  |  |",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.conditions["cpu"] != "A & B" || r.conditions["rounds"] != "2" {
		t.Errorf("conditions %q", r.conditions)
	}
	missed, err := parse(strings.ReplaceAll(sample, " 10000 ns/op", " 20000 ns/op"))
	if err != nil {
		t.Fatal(err)
	}
	if table := missed.comparisons(); !strings.Contains(table, "| 3.00×: **missed** |") {
		t.Errorf("no target is missed in\n%s", table)
	}
}

func TestParseRefusesRowsThatAreCut(t *testing.T) {
	for _, row := range []string{"BenchmarkLimiter/a/b-2 1 5", "BenchmarkLimiter/a/b-2 1 x ns/op"} {
		if _, err := parse(row); err == nil {
			t.Errorf("%q is read", row)
		}
	}
}

func TestGrowth(t *testing.T) {
	r, err := parse("BenchmarkGrowthOfPolicies/1-2 1 10000 ns/op 1e6 p99-ns 100 B/key\nBenchmarkGrowthOfPolicies/1000 1 20000 ns/op 2e6 p99-ns 90 B/key\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "| policies | decisions | p99 | memory for each key |\n|--:|--:|--:|--:|\n| 1 | 100 k/s | 1.0 ms | 100 bytes |\n| 1,000 | 50.0 k/s | 2.0 ms | 90 bytes |\n"
	if got := r.growth(); !strings.HasSuffix(got, want) || !strings.Contains(got, "## Policies of a request") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The page and the chart are those of the raw rows beside them.
func TestTheCommittedPage(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	r, err := parse(read("benchmarks.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.page(r.comparisons(), "benchmarks.txt", "benchmarks.svg"); got != read("benchmarks.md") {
		t.Error("docs/benchmarks.md is not up to date: go run . -from ../../docs/benchmarks.txt -markdown ../../docs/benchmarks.md -svg ../../docs/benchmarks.svg")
	}
	if got := r.chart().svg(); got != read("benchmarks.svg") {
		t.Error("docs/benchmarks.svg is not up to date")
	}
	for name := range targets {
		if !slices.ContainsFunc(r.sides, func(m *measured) bool { return m.benchmark+": "+m.workload == name }) {
			t.Errorf("the target of %q is of no row", name)
		}
	}
}

func TestTheChartIsXML(t *testing.T) {
	raw := ""
	for _, side := range []string{"ours", "<,_&", "slow", "slower"} {
		raw += "BenchmarkLimiter/one_&_many/" + side + "-2 1 " + map[string]string{"ours": "1000", "<,_&": "500", "slow": "1e7", "slower": "2e7"}[side] + " ns/op\n"
	}
	r, err := parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for decoder := xml.NewDecoder(strings.NewReader(r.chart().svg())); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok && strings.TrimSpace(string(data)) != "" && !strings.Contains(string(data), "font") {
			texts = append(texts, string(data))
		}
	}
	want := []string{chartTitle, "one & many", "<, &", "2.00 M/s", "ours", "1.00 M/s", "slow", "0.1 k/s", "slower", "0.1 k/s"}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}
