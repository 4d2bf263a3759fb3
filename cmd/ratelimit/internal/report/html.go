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
		"key": key, "kind": func(p *Policy) string {
			return map[string]string{Green: "good", Yellow: "shadow", Red: "denies"}[p.color()]
		},
		"paragraph": func(sentence string) string { return cut(shown(sentence), 1000) }, // it may have names from files
		"place":     func(n, all int64) float64 { return 100 * place(part(n, all)) },
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
	var text bytes.Buffer
	if err := pages.Execute(&text, r); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}
