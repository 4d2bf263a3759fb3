package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
)

var (
	//go:embed page.html
	pageText string
	//go:embed style.css
	style string

	pages = template.Must(template.New("page").Parse(pageText))
	// contentSecurity allows the page its style and an empty icon, and nothing else.
	contentSecurity = "default-src 'none'; style-src 'sha256-" + hash(style) + "'; img-src data:; base-uri 'none'; form-action 'none'"
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// HTML writes the report as a page of one file. It has no script and loads nothing.
func (r *Report) HTML(w io.Writer) error {
	var text bytes.Buffer
	if err := pages.Execute(&text, r.page()); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// A page is the report in words. All texts of the log are escaped for people, and html/template escapes them for HTML.
type page struct {
	Security   string
	Style      template.CSS
	Heading    string
	Source     string
	Incomplete bool
	LeftOut    string
	Policies   []policyPage
	Unknown    []string
	BadLines   string
	Bad        []badPage
	Reading    []string
}

type policyPage struct {
	ID                             int
	Name, Limit, On                string
	Shadow                         bool
	Longest                        string // wait of a client
	Verdict, When, Kind            string
	Requests, RequestsOf           string
	Clients, ClientsOf             string
	Spares, SparesOf, SparesAnswer string
	Notes                          []string
	Curves, Bars                   []*chart
	Points                         []pointRow
	NoCurve, NoBars                string
	Spans                          []spanRow
	SpanLength                     string
	Worst                          []clientRow
	Spare                          []pointRow
	Unknown                        []string
}

type (
	pointRow struct {
		Limit, Requests, RequestsShare, Clients, ClientsShare string
		Own                                                   bool
	}
	spanRow   struct{ From, Requests, Denied, Share string }
	clientRow struct{ Key, Requests, Denied, Share, First, Last, Longest, Total string }
	badPage   struct {
		Lines, Reason, Remedy string
		Examples              []badRow
	}
	badRow struct {
		File string
		Line string
		Text string
	}
)

func (r *Report) page() page {
	p := page{
		Security: contentSecurity, Style: template.CSS(style),
		Heading: "What these limits would do", Incomplete: r.Incomplete, LeftOut: r.leftOut(), Reading: r.reading(),
		Source: "No request could be read.",
	}
	if len(r.Policies) == 1 {
		p.Heading = "What this limit would do"
	}
	if r.Requests > 0 {
		p.Source = of(r.Requests, "request") + " of " + r.files() + ", " + r.period()
	}
	for i := range r.Policies {
		p.Policies = append(p.Policies, r.policyPage(i))
	}
	for _, sentence := range r.Unknown {
		p.Unknown = append(p.Unknown, paragraph(sentence))
	}
	if n := r.badLines(); n > 0 {
		p.BadLines = of(n, "line") + " of " + count(r.Lines) + " could not be read"
	}
	for _, b := range r.Bad {
		row := badPage{Lines: of(b.Lines, "line"), Reason: paragraph(b.Reason), Remedy: paragraph(b.Remedy)}
		for _, e := range b.Examples {
			row.Examples = append(row.Examples, badRow{key(e.File, 80), count(e.Line), cut(shown(e.Text), 300)})
		}
		p.Bad = append(p.Bad, row)
	}
	return p
}

func (r *Report) policyPage(i int) policyPage {
	p := &r.Policies[i]
	if p.unjudged() {
		bare := *p
		bare.Curve, bare.Spare = nil, nil
		p = &bare
	}
	c, zone := r.clock(), r.clock().zoneOf(r.From)
	page := policyPage{
		ID: i + 1, Name: key(p.Name, 80), Limit: key(p.Limit, 80), On: key(p.On, 200),
		Shadow: p.Shadow, Verdict: p.verdict(), When: p.when(c, zone), Kind: p.kind(),
		Requests: share(p.RequestsDenied, p.Requests), RequestsOf: count(p.RequestsDenied) + " of " + count(p.Requests),
		Clients: share(p.ClientsDenied, p.Clients), ClientsOf: count(p.ClientsDenied) + " of " + count(p.Clients),
		Notes: p.notes(r.Clients), Curves: p.curves(), Bars: p.bars(c, zone),
	}
	requests, clients := p.alone()
	for _, at := range p.Curve {
		page.Points = append(page.Points, pointRow{
			key(at.Limit, 80), count(at.RequestsDenied), share(at.RequestsDenied, requests),
			count(at.ClientsDenied), share(at.ClientsDenied, clients), at.Own,
		})
	}
	if page.Curves == nil && len(p.Curve) > 0 {
		page.NoCurve = "None of these limits would deny a request."
	}
	spans, length := p.spans(48)
	page.SpanLength = span(length.Seconds())
	for _, s := range spans {
		if s.Denied > 0 && length > 0 {
			page.Spans = append(page.Spans, spanRow{c.of(s.From, length), count(s.Requests), count(s.Denied), share(s.Denied, s.Requests)})
		}
	}
	longest := 0.0
	for _, w := range p.Worst {
		longest = max(longest, w.Longest)
		page.Worst = append(page.Worst, clientRow{
			key(w.Key, 200), count(w.Requests), count(w.Denied), share(w.Denied, w.Requests),
			c.at(w.First), c.at(w.Last), w.wait(w.Longest), w.wait(w.Total),
		})
	}
	if longest > 0 {
		page.Longest = span(longest)
	}
	if p.Spare != nil {
		page.SparesOf, page.SparesAnswer = percent(p.Spare.Share), p.sentence()
		for _, l := range p.Spare.Limits {
			page.Spare = append(page.Spare, pointRow{Limit: key(l.Limit, 80), Clients: count(l.ClientsDenied), ClientsShare: share(l.ClientsDenied, clients), Own: l.Own})
			if l.Own {
				page.Spares = count(l.Burst)
			}
		}
	}
	for _, sentence := range p.Unknown {
		page.Unknown = append(page.Unknown, paragraph(sentence))
	}
	return page
}

// paragraph makes a sentence of the simulation safe and bounds it: it may have names from files.
func paragraph(sentence string) string { return cut(shown(sentence), 1000) }

// kind is the class of the verdict.
func (p *Policy) kind() string {
	switch p.color() {
	case green:
		return "good"
	case yellow:
		return "shadow"
	}
	return "denies"
}
