package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

var (
	//go:embed page.html
	pageText string
	//go:embed style.css
	style string

	pages = template.Must(template.New("page").Funcs(template.FuncMap{
		"count": numbers.Count, "share": share, "percent": numbers.Percent, "of": numbers.Of, "span": numbers.Span, "seconds": numbers.Seconds,
		"key":       key,
		"paragraph": func(sentence string) string { return cut(shown(sentence), 1000) }, // it may have names from files
		"width":     func(n, most int64) float64 { return 100 * part(n, most) },
		"height":    height,
		"top":       func(n, most int64) float64 { return 100 - height(n, most) },
		"style":     func() template.CSS { return template.CSS(style) },
		"security":  func() string { return contentSecurity },
	}).Parse(pageText))
	// contentSecurity allows the page its style and an empty icon, and nothing else.
	contentSecurity = "default-src 'none'; style-src 'sha256-" + hash(style) + "'; img-src data:; base-uri 'none'; form-action 'none'"
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// height is that of a bar of a chart, in percent.
func height(n, most int64) float64 { return max(1, 100*part(n, most)) }

// HTML writes the report as a page of one file. It has no script and loads nothing.
func (r *Report) HTML(w io.Writer) error {
	var views []view
	for i := range r.Policies {
		views = append(views, r.view(i))
	}
	var text bytes.Buffer
	if err := pages.Execute(&text, map[string]any{"Report": r, "Views": views}); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// A view has what the template asks of a policy, beside the policy.
type view struct {
	*Policy
	ID                          int
	Clock                       clock
	Most                        Span
	MostClients                 int64 // that a limit of the curve denies
	RequestsAlone, ClientsAlone int64
	LongestWait                 float64
	Burst                       int64
	Denials                     string
	Notes                       []string
	Kind                        string // the class of the verdict
}

func (r *Report) view(i int) view {
	p := r.Policies[i]
	if p.unjudged() {
		p.Curve, p.Spare = nil, nil
	}
	v := view{Policy: &p, ID: i + 1, Clock: r.clock(), Most: peak(p.When), Denials: p.denials(r.clock()), Notes: p.notes(r.Clients)}
	v.RequestsAlone, v.ClientsAlone = p.alone()
	v.MostClients = p.mostClients()
	v.Kind = map[string]string{green: "good", yellow: "shadow", red: "denies"}[p.color()]
	for _, c := range p.Worst {
		v.LongestWait = max(v.LongestWait, c.Longest)
	}
	if own := p.ownSpare(); own != nil {
		v.Burst = own.Burst
	}
	return v
}
