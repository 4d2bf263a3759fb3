package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

var (
	//go:embed page.html
	pageText string
	//go:embed style.css
	style string

	pages = template.Must(template.New("page").Funcs(template.FuncMap{
		"count": numbers.Count, "share": share, "percent": numbers.Percent, "key": key, "paragraph": paragraph, "of": numbers.Of, "width": barWidth,
	}).Parse(pageText))
	// contentSecurity allows the page its style and an empty icon, and nothing else.
	contentSecurity = "default-src 'none'; style-src 'sha256-" + hash(style) + "'; img-src data:; base-uri 'none'; form-action 'none'"
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// HTML writes the report as a page of one file. It has no script and loads nothing.
func (r *Report) HTML(w io.Writer) error {
	p := page{Report: r}
	for i := range r.Policies {
		p.Views = append(p.Views, r.view(i))
	}
	var text bytes.Buffer
	if err := pages.Execute(&text, p); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// A page has what the template asks of a report.
type page struct {
	*Report
	Views []view
}

func (page) Security() string    { return contentSecurity }
func (page) Style() template.CSS { return template.CSS(style) }

func (p page) Heading() string {
	if len(p.Policies) == 1 {
		return "What this limit would do"
	}
	return "What these limits would do"
}

func (p page) Source() string {
	if p.Requests == 0 {
		return "No request could be read."
	}
	return numbers.Of(p.Requests, "request") + " of " + p.files() + ", " + p.period()
}

func (p page) LeftOutText() string { return p.leftOut() }
func (p page) Reading() []string   { return p.reading() }

func (p page) BadText() string {
	if p.badLines() == 0 {
		return ""
	}
	return numbers.Of(p.badLines(), "line") + " of " + numbers.Count(p.Lines) + " could not be read"
}

// A view has what the template asks of a policy.
type view struct {
	*Policy
	ID                           int
	Spans                        []Span // few, without gaps
	Length                       time.Duration
	Most                         Span
	MostClients                  int64 // that a limit of the curve denies
	RequestsAlone, ClientsAlone  int64
	WhenText, LongestText, Burst string
	Notes                        []string
	clock                        clock
}

func (r *Report) view(i int) view {
	p := r.Policies[i]
	if p.unjudged() {
		p.Curve, p.Spare = nil, nil
	}
	v := view{Policy: &p, ID: i + 1, clock: r.clock(), WhenText: p.when(r.clock(), r.clock().zoneOf(r.From)), Notes: p.notes(r.Clients)}
	v.Spans, v.Length = p.spans(72)
	v.Most = peak(v.Spans)
	v.RequestsAlone, v.ClientsAlone = p.alone()
	for _, at := range p.Curve {
		v.MostClients = max(v.MostClients, at.ClientsDenied)
	}
	longest := 0.0
	for _, w := range p.Worst {
		longest = max(longest, w.Longest)
	}
	if longest > 0 {
		v.LongestText = numbers.Seconds(longest)
	}
	if p.Spare != nil {
		for _, l := range p.Spare.Limits {
			if l.Own {
				v.Burst = numbers.Count(l.Burst)
			}
		}
	}
	return v
}

func (v view) Verdict() string             { return v.verdict() }
func (v view) Advice() string              { return v.sentence() }
func (v view) At(t time.Time) string       { return v.clock.at(t) }
func (v view) From(t time.Time) string     { return v.clock.of(t, v.Length) }
func (v view) To() time.Time               { return v.Spans[len(v.Spans)-1].From.Add(v.Length) }
func (v view) LengthText() string          { return numbers.Span(v.Length) }
func (c Client) LongestText() string       { return c.wait(c.Longest) }
func (c Client) TotalText() string         { return c.wait(c.Total) }
func (v view) Top(denied int64) float64    { return 100 - v.Height(denied) }
func (v view) Height(denied int64) float64 { return max(1, 100*part(denied, v.Most.Denied)) }
func barWidth(n, most int64) float64       { return 100 * part(n, most) }
func paragraph(sentence string) string     { return cut(shown(sentence), 1000) } // it may have names from files

// Kind is the class of the verdict.
func (v view) Kind() string {
	switch v.color() {
	case green:
		return "good"
	case yellow:
		return "shadow"
	}
	return "denies"
}
