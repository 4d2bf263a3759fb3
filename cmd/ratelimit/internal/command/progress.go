package command

import (
	"fmt"
	"io"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// A progress shows in a line of a terminal how much of the logs was read. Write counts the bytes.
type progress struct {
	to          io.Writer
	read, size  int64 // bytes of the logs as they are stored; size is 0 if it is not known
	begun, last time.Time
	width       int
}

// showProgress shows the progress of the reading of logs, if there is a terminal. end clears the line.
func showProgress(logs []simulate.Log, size int64, e *env) (end func()) {
	if !isTerminal(e.err) || e.getenv("TERM") == "dumb" {
		return func() {}
	}
	p := &progress{to: e.err, size: size, begun: time.Now(), last: time.Now()}
	for i := range logs {
		logs[i].Reader = io.TeeReader(logs[i].Reader, p)
	}
	return func() { p.show("") }
}

func (p *progress) Write(read []byte) (int, error) {
	p.read += int64(len(read))
	if now := time.Now(); now.Sub(p.last) >= 200*time.Millisecond {
		p.last = now
		p.show(p.text(now.Sub(p.begun)))
	}
	return len(read), nil
}

func (p *progress) show(text string) {
	fmt.Fprintf(p.to, "\r%*s\r%s", p.width, "", text)
	p.width = len(text)
}

func (p *progress) text(took time.Duration) string {
	if p.size == 0 {
		return numbers.Size(p.read)
	}
	share := min(1, float64(p.read)/float64(p.size)) // a log may have grown
	left := time.Duration(float64(took) * (1/share - 1)).Round(time.Second)
	return fmt.Sprintf("%3.0f %%  %s of %s, %s left", 100*share, numbers.Size(p.read), numbers.Size(p.size), numbers.Span(left))
}
