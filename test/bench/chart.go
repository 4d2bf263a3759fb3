package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

const chartTitle = "Decisions per second in Redis, by library"

// A chart has a panel for each load. Each panel has a separate scale, because the loads differ too much for one.
type chart []panel

type panel struct {
	title string
	bars  []bar
}

type bar struct {
	label, value string
	length       float64 // of the longest bar
	ours         bool
}

// chart draws the workloads with the most informative differences, the fastest side of each at the top.
func (r results) chart() (c chart) {
	for sides := range r.workloads() {
		if sides[0].benchmark != "Limiter" || len(sides) < 4 || strings.Contains(sides[0].workload, " 64 ") {
			continue
		}
		sorted := slices.Clone(sides)
		slices.SortStableFunc(sorted, func(a, b *measured) int { return cmp.Compare(b.speed().median(), a.speed().median()) })
		p := panel{title: sides[0].workload}
		for _, s := range sorted {
			speed := s.speed().median()
			p.bars = append(p.bars, bar{s.name, perSecond(speed), speed / sorted[0].speed().median(), s == sides[0]})
		}
		c = append(c, p)
	}
	return c
}

// In pixels.
const (
	chartWidth  = 800
	chartMargin = 16
	labelWidth  = 310
	barWidth    = 380 // of the longest
	barHeight   = 14
	lineHeight  = 24
)

// The colours contrast with white and with black. There is no background, because a page may have either.
const chartHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s">
<style>
text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #768390 }
.title { font-size: 16px; font-weight: 600 }
.panel { font-weight: 600 }
.ours { font-weight: 600; fill: #2f81f7 }
rect { fill: #8b949e }
</style>
`

// svg returns the chart as a document. Equal figures give equal documents.
func (c chart) svg() string {
	height := 2*chartMargin + lineHeight
	for _, p := range c {
		height += (len(p.bars) + 2) * lineHeight
	}
	var doc strings.Builder
	fmt.Fprintf(&doc, chartHead, chartWidth, height, escape(chartTitle))
	y := chartMargin + barHeight
	text := func(x int, class, s string) {
		fmt.Fprintf(&doc, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, escape(s))
	}
	text(chartMargin, "title", chartTitle)
	for _, p := range c {
		y += 2 * lineHeight
		text(chartMargin, "panel", p.title)
		for _, b := range p.bars {
			y += lineHeight
			class := "theirs"
			if b.ours {
				class = "ours"
			}
			length := max(b.length*barWidth, 1) // at least one pixel, to be visible
			text(chartMargin, class, b.label)
			fmt.Fprintf(&doc, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", class, chartMargin+labelWidth, y-barHeight+3, length, barHeight)
			text(chartMargin+labelWidth+int(length)+8, class, b.value)
		}
	}
	doc.WriteString("</svg>\n")
	return doc.String()
}

func escape(s string) string {
	var text strings.Builder
	if err := xml.EscapeText(&text, []byte(s)); err != nil {
		panic(err) // a strings.Builder does not fail
	}
	return text.String()
}
