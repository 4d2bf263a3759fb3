package simulate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/keyhash"
	"github.com/go-tokenbucket/ratelimit/store"
)

// decisions writes a JSON line for each request and policy.
type decisions struct {
	to   *bufio.Writer
	line []byte
}

func (d *decisions) flush() error {
	if d == nil {
		return nil
	}
	return wrap(d.to.Flush())
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("simulate: decisions: %w", err)
	}
	return nil
}

// write writes what was decided about a line.
func (d *decisions) write(s *simulation, p *passage) error {
	for i := range p.refusals {
		refused := &p.refusals[i]
		d.begin(s, p)
		if refused.policy >= 0 {
			d.text("policy", s.setup.policies[refused.policy].Name)
		}
		d.bool("allowed", refused.passed)
		d.bool("request_allowed", refused.passed)
		d.text("error", refused.kind())
		if err := d.end(p); err != nil {
			return err
		}
	}
	for i := range p.outcomes {
		o := &p.outcomes[i]
		key := o.key
		if s.secret != nil {
			key = keyhash.Name(s.secret, short(key))
		}
		d.begin(s, p)
		d.text("policy", s.setup.policies[o.policy].Name)
		d.text("key", key)
		d.bool("allowed", o.allowed)
		d.bool("request_allowed", o.passed)
		if o.shadow {
			d.bool("shadow", true)
		}
		d.number("cost", o.cost)
		if o.final != o.cost {
			d.number("final_cost", o.final)
		}
		d.number("remaining", o.remaining)
		switch {
		case o.retryAfter == store.Never:
			d.bool("never", true)
		case o.retryAfter > 0:
			d.seconds("retry_after", o.retryAfter)
		}
		if o.wait > 0 {
			d.seconds("wait", o.wait)
		}
		if err := d.end(p); err != nil {
			return err
		}
	}
	return nil
}

func (d *decisions) begin(s *simulation, p *passage) {
	d.line = append(d.line[:0], '{')
	d.text("file", s.cfg.Logs[p.file].Name)
	d.number("line", p.number)
	d.name("time")
	d.line = append(d.line, '"')
	d.line = timeOf(p.time).AppendFormat(d.line, time.RFC3339Nano)
	d.line = append(d.line, '"')
}

func (d *decisions) end(p *passage) error {
	if p.answer.status != 0 {
		d.number("status", int64(p.answer.status))
	}
	d.line = append(d.line, "}\n"...)
	_, err := d.to.Write(d.line)
	return wrap(err)
}

func (d *decisions) name(name string) {
	if len(d.line) > 1 {
		d.line = append(d.line, ',')
	}
	d.line = append(append(append(d.line, '"'), name...), `":`...)
}

func (d *decisions) text(name, text string) {
	d.name(name)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(text)
			d.line = append(d.line, quoted...)
			return
		}
	}
	d.line = append(append(append(d.line, '"'), text...), '"')
}

func (d *decisions) bool(name string, is bool) {
	d.name(name)
	d.line = strconv.AppendBool(d.line, is)
}

func (d *decisions) number(name string, n int64) {
	d.name(name)
	d.line = strconv.AppendInt(d.line, n, 10)
}

func (d *decisions) seconds(name string, t time.Duration) {
	d.name(name)
	d.line = strconv.AppendFloat(d.line, t.Seconds(), 'f', -1, 64)
}
