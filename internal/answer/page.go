package answer

import (
	"bytes"
	"fmt"
	"html"
	"io"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Template writes an HTML page. Package denial exports and documents it.
type Template interface {
	Execute(w io.Writer, data any) error
}

// pageHead and the constants below are plain HTML, so that they work under any Content-Security-Policy. They are
// accessible: a page has a language, a title, one heading and a landmark.
const (
	pageHead = `<!DOCTYPE html>
<html lang="%s">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%[2]s</title>
</head>
<body>
<main>
<h1>%[2]s</h1>
`
	pageDetail = "<p>%s</p>\n"
	pageFoot   = "</main>\n</body>\n</html>\n"

	fragmentHead   = `<p role="alert" lang="%s"><strong>%s</strong>`
	fragmentDetail = "<br>%s"
	fragmentFoot   = "</p>\n"
)

// html returns the problem as a page, written by template. If there is no template or it fails, the default page is
// used.
func (p *problem) html(t Text, template Template) []byte {
	if template != nil {
		data := struct {
			Text
			Status     int
			RetryAfter int64
		}{Text: t, Status: p.status}
		if p.after != store.Never {
			data.RetryAfter = int64(p.after.Seconds())
		}
		var page bytes.Buffer
		if err := template.Execute(&page, data); err == nil {
			return page.Bytes()
		}
	}
	return markup(t, pageHead, pageDetail, pageFoot)
}

// fragment returns the problem as a fragment for a page.
func (p *problem) fragment(t Text) []byte {
	return markup(t, fragmentHead, fragmentDetail, fragmentFoot)
}

func markup(t Text, head, detail, foot string) []byte {
	b := fmt.Appendf(make([]byte, 0, 384), head, t.Language, html.EscapeString(t.Title))
	if t.Detail != "" {
		b = fmt.Appendf(b, detail, html.EscapeString(t.Detail))
	}
	return append(b, foot...)
}
