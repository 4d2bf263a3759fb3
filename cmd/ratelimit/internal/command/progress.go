package command

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// A progress shows how far a simulation is.
type progress struct {
	to          io.Writer
	bar, lines  bool
	begun, last time.Time
	width       int
}

func newProgress(e *env, lines bool) *progress {
	now := time.Now()
	return &progress{to: e.err, bar: isTerminal(e.err) && e.getenv("TERM") != "dumb", lines: lines, begun: now, last: now}
}

// lineEvery is the time between two lines of -progress.
const lineEvery = 10 * time.Second

func (p *progress) show(at simulate.Progress) {
	now := time.Now()
	switch {
	case p.bar:
		text := p.text(at, now)
		fmt.Fprintf(p.to, "\r%-*s", p.width, text)
		p.width = len(text)
	case p.lines && now.Sub(p.last) >= lineEvery:
		p.last = now
		fmt.Fprintf(p.to, "ratelimit simulate: %s\n", p.text(at, now))
	}
}

// text describes the progress in less than 80 columns.
func (p *progress) text(at simulate.Progress, now time.Time) string {
	took := now.Sub(p.begun).Seconds()
	speed := fmt.Sprintf("%s lines, %s a second", numbers.Count(at.Lines), numbers.Count(int64(float64(at.Lines)/max(took, 1e-3))))
	if at.Size <= 0 || at.Read <= 0 {
		return speed
	}
	share, bar := min(1, float64(at.Read)/float64(at.Size)), ""
	if p.bar {
		full := int(20 * share)
		bar = "[" + strings.Repeat("#", full) + strings.Repeat(".", 20-full) + "] "
	}
	text := fmt.Sprintf("%s%3.0f %%  %s", bar, 100*share, speed)
	if share < 1 && took > 1 {
		text += ", " + numbers.Span(time.Duration(took*(1/share-1)*1e9).Round(time.Second)) + " left"
	}
	return text
}

// end clears the bar.
func (p *progress) end() {
	if p.bar && p.width > 0 {
		fmt.Fprintf(p.to, "\r%*s\r", p.width, "")
	}
}
