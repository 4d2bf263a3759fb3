package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestChartIsXMLWithEveryLabel(t *testing.T) {
	sides := []side{
		{name: "ours", sideFigures: sideFigures{rate: figure{900_000, 1_000_000, 1_100_000}}},
		{name: `those with <, & and "`, sideFigures: sideFigures{rate: figure{2_000_000}}},
		{name: "the slow", sideFigures: sideFigures{rate: figure{123}}},
	}
	r := report{}
	r.found[asUsed].loads = []loadTable{
		{name: limiter1024, title: "one & many keys", sides: sides},
		{name: limiter64, title: "not drawn", sides: sides},
		{name: limiterRefusals, title: "no keys", sides: sides[:1]},
	}
	svg := r.chart().svg()

	var texts []string
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
		if data, ok := token.(xml.CharData); ok {
			texts = append(texts, string(data))
		}
	}
	// Labels and values in the order of the chart, the fastest first.
	want := []string{
		chartTitle,
		"one & many keys", `those with <, & and "`, "2.00 M/s", "ours", "1.00 M/s", "the slow", "0.1 k/s",
		"no keys", "ours", "1.00 M/s",
	}
	at := 0
	for _, text := range texts {
		if at < len(want) && text == want[at] {
			at++
		}
		if text == "not drawn" {
			t.Errorf("there is a panel for a load that is not to be drawn")
		}
	}
	if at < len(want) {
		t.Errorf("%q is missing, or not after %q, in %q", want[at], want[:at], texts)
	}
	if again := r.chart().svg(); again != svg {
		t.Errorf("drawn again it is another:\n%s\n%s", svg, again)
	}
}
