package curl

import (
	"net/url"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// addData adds the value of a flag that describes the body or the query. Only the length of a body is kept.
func (p *parser) addData(name, value string) error {
	switch name {
	case "url-query":
		text, ready := strings.CutPrefix(value, "+")
		if !ready {
			text = urlEncoded(value)
		}
		if !ready && strings.Contains(text, "@") {
			p.ignore("--url-query " + logtext.Show(value, 64) + ": no file is opened")
			return nil
		}
		p.query = append(p.query, text)
		return nil
	case "json":
		p.kind, p.accept = "application/json", "application/json"
	case "data-urlencode":
		value = urlEncoded(value)
	}
	p.hasData = true
	if name != "data-raw" && strings.HasPrefix(value, "@") || name == "data-urlencode" && strings.Contains(value, "@") && !strings.Contains(value, "=") {
		p.ignore("--" + name + " " + logtext.Show(value, 64) + ": no file is opened")
		return nil
	}
	if len(p.data) > 0 && name != "json" {
		p.Length++ // the & between
	}
	p.Length += int64(len(value))
	p.data = append(p.data, value)
	return nil
}

// urlEncoded returns what --data-urlencode makes of a value, which stays if it names a file.
func urlEncoded(value string) string {
	field, text, named := strings.Cut(value, "=")
	switch {
	case named && field != "":
		return field + "=" + url.QueryEscape(text)
	case named:
		return url.QueryEscape(text)
	case !strings.Contains(value, "@"):
		return url.QueryEscape(value)
	}
	return value
}
