package denial_test

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
)

func accept(lines ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header["Accept"] = lines }
}

func TestTheFormIsWhatAcceptPrefers(t *testing.T) {
	h := answers(t, denial.Handler{}, time.Second)[429]
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"none", nil, problemJSON},
		{"an empty one", []string{""}, problemJSON},
		{"fetch and curl", []string{"*/*"}, problemJSON},
		{"Firefox", []string{browser}, pageHTML},
		{"Chrome", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"}, pageHTML},
		{"an image of a page", []string{"image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"}, problemJSON},
		{"Internet Explorer", []string{"text/html, application/xhtml+xml, */*"}, pageHTML},
		{"axios and Angular", []string{"application/json, text/plain, */*"}, problemJSON},
		{"jQuery", []string{"application/json, text/javascript, */*; q=0.01"}, problemJSON},
		{"lynx", []string{"text/html, text/plain, text/sgml, text/css, application/xhtml+xml, */*;q=0.01"}, plainText},
		{"an old client of Java", []string{"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}, pageHTML},
		{"a media type of a vendor", []string{"application/vnd.github+json"}, problemJSON},
		{"events", []string{"text/event-stream"}, problemJSON},

		{"exactly", []string{"application/problem+json"}, problemJSON},
		{"any of the application", []string{"application/*"}, problemJSON},
		{"plain text", []string{"text/plain"}, plainText},
		{"any text", []string{"text/*"}, plainText},
		{"any text but plain", []string{"text/*, text/plain;q=0"}, pageHTML},
		{"a page, any case", []string{"TEXT/Html"}, pageHTML},
		{"a charset that is ours", []string{"text/html; Charset=UTF-8"}, pageHTML},
		{"a charset that is not", []string{"text/html;charset=utf-16, text/plain;q=0.1"}, plainText},
		{"a parameter that we have not", []string{"text/html;level=1, text/plain;q=0.1"}, plainText},

		{"weights", []string{"application/json;q=0.5, text/plain;q=0.501, text/html;q=0.5"}, plainText},
		{"weights of two decimals", []string{"text/plain;q=0.15, text/html;q=0.2"}, pageHTML},
		{"a weight in upper case", []string{"text/html, text/plain;Q=0.9"}, pageHTML},
		{"equal weights", []string{"text/html, application/json"}, problemJSON},
		{"equal weights, one by a wildcard", []string{"text/html;q=0.5, */*;q=0.5"}, pageHTML},
		{"a wildcard that weighs more", []string{"text/html;q=0.5, */*;q=0.6"}, problemJSON},
		{"what is more specific decides", []string{"text/html;q=0.1, text/*;q=0.9, application/json;q=0.5"}, plainText},
		{"also if it comes later", []string{"*/*, application/*;q=0.2, application/json;q=0.1, text/*;q=0.3, text/html;q=0.4"}, pageHTML},
		{"a problem is more specific than JSON", []string{"application/json, application/problem+json;q=0.1, text/html;q=0.5"}, pageHTML},
		{"a charset is more specific than none", []string{"text/html, text/html;charset=utf-8;q=0.1, application/json;q=0.5"}, problemJSON},
		{"also if it comes first", []string{"text/html;charset=utf-8;q=0.1, text/html, application/json;q=0.5"}, problemJSON},
		{"nothing of JSON", []string{"application/json;q=0, application/problem+json;q=0.0, */*;q=0.1"}, plainText},
		{"nothing at all", []string{"*/*;q=0"}, problemJSON},
		{"nothing that we have", []string{"image/png, text/html;q=0.000"}, problemJSON},

		{"several lines", []string{"image/png", "text/html;q=0.4", "text/plain;q=0.5"}, plainText},
		{"a line that weighs another down", []string{"*/*;q=0.4", "application/json;q=0.2"}, plainText},
		{"empty elements", []string{" , ,,text/html ;; q=1;,"}, pageHTML},
		{"tabs", []string{"\ttext/html\t;\tq=0.5\t,\tapplication/json;q=0.4"}, pageHTML},
		{"a comma in quotes", []string{`text/plain;x="a,text/html,b"`}, problemJSON},
		{"an escaped quote", []string{`text/plain;x="\",text/html,"`}, problemJSON},
		{"a quote that does not end", []string{`text/plain, application/json;q=0.1;x=", text/html`}, plainText},

		{"malformed weights", []string{"text/html;q=2, text/html;q=1.1, text/html;q=-1, text/html;q=, text/html;q, text/html;q=0.1234, text/html;q=.5, text/html;q=0,5, text/html;q=1.001, text/html;q=\"1\", text/html;q=1e0"}, problemJSON},
		{"malformed ranges", []string{"text, /, text/, /html, */html, text/html/x, te xt/html, text /html, text/ht(ml, t\u00e9xt/html, *, text\\html"}, problemJSON},
		{"any type of a page", []string{"*/html, text/html;q=0.1"}, pageHTML},
		{"malformed beside well-formed", []string{"text/html;q=x, text/plain;q=0.1"}, plainText},

		{"64 KiB", []string{strings.Repeat("a/b,", 16<<10) + "text/html"}, problemJSON},
		{"64 KiB behind what is read", []string{"text/html," + strings.Repeat("a/b,", 16<<10)}, pageHTML},
		{"64 KiB of one element", []string{"text/html;" + strings.Repeat("a", 64<<10)}, problemJSON},
		{"64 KiB of lines", append(slices.Repeat([]string{"a/b"}, 16<<10), "text/html"), problemJSON},
		{"a line behind 64 KiB", []string{"a/b," + strings.Repeat("a", 64<<10), "text/html"}, problemJSON},
		{"all that is read", []string{strings.Repeat("a/b,", 253) + "ab,text/html"}, pageHTML},
		{"what is cut is not read", []string{strings.Repeat("a/b,", 253) + "ab,text/html;q=0"}, problemJSON},
	} {
		if got := get(h, accept(c.lines...)).Header().Get("Content-Type"); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// FuzzAccept compares the form that is chosen with what a slow reading of the rules chooses.
func FuzzAccept(f *testing.F) {
	l, err := ratelimit.New(ratelimit.Config{Store: denying(time.Second)})
	if err != nil {
		f.Fatal(err)
	}
	h := l.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler)
	f.Fuzz(func(t *testing.T, header string) {
		if len(header) > 1024 {
			t.Skip("not read to its end")
		}
		lines := strings.Split(header, "\n")
		got := get(h, accept(lines...)).Header().Get("Content-Type")
		if want := slowlyPreferred(lines); got != want {
			t.Errorf("%q: %s, want %s", lines, got, want)
		}
	})
}

// The grammar of RFC 9110, sections 5.6 and 12.5.1, as far as an answer of ours can be asked for.
const token = "[-!#$%&'*+.^_`|~0-9A-Za-z]+"

var (
	listElement   = regexp.MustCompile(`(?s)(?:[^",]|"(?:[^"\\]|\\.)*(?:"|\\?$))+`)
	acceptElement = regexp.MustCompile(`^[ \t]*(` + token + `)/(` + token + `)((?:[ \t]*;[ \t]*(?:(?i:q)=[^ \t;]+|(?i:charset=(?:utf-8|"utf-8")))?)*)[ \t]*$`)
	weightOf      = regexp.MustCompile(`(?i:q)=([^ \t;]+)`)
	weight        = regexp.MustCompile(`^(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)$`)
)

func slowlyPreferred(lines []string) string {
	type said struct {
		charset int // how often it names the charset
		rank    int
		weight  float64
	}
	ranges := make(map[string][]said)
	for _, line := range lines {
		for _, element := range listElement.FindAllString(line, -1) {
			parts := acceptElement.FindStringSubmatch(element)
			if parts == nil || parts[1] == "*" && parts[2] != "*" {
				continue
			}
			s := said{weight: 1, charset: strings.Count(strings.ToLower(parts[3]), "utf-8")}
			malformed := false
			for _, q := range weightOf.FindAllStringSubmatch(parts[3], -1) {
				malformed = malformed || !weight.MatchString(q[1])
				s.weight, _ = strconv.ParseFloat(q[1], 64)
			}
			if malformed {
				continue
			}
			add := func(rank int, forms ...string) {
				s.rank = rank
				for _, form := range forms {
					ranges[form] = append(ranges[form], s)
				}
			}
			switch strings.ToLower(parts[1] + "/" + parts[2]) {
			case "*/*":
				add(1, problemJSON, plainText, pageHTML)
			case "application/*":
				add(2, problemJSON)
			case "text/*":
				add(2, plainText, pageHTML)
			case "application/json":
				add(3, problemJSON)
			case "application/problem+json":
				add(4, problemJSON)
			case "text/plain":
				add(4, plainText)
			case "text/html":
				add(4, pageHTML)
			}
		}
	}
	chosen := make(map[string]said)
	for form, all := range ranges {
		chosen[form] = slices.MaxFunc(all, func(a, b said) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(min(a.charset, 1), min(b.charset, 1)), cmp.Compare(a.weight, b.weight))
		})
	}
	// Stable: of equal ones, the first.
	order := []string{problemJSON, plainText, pageHTML}
	slices.SortStableFunc(order, func(a, b string) int {
		x, y := chosen[a], chosen[b]
		if x.weight == 0 && y.weight == 0 {
			return 0
		}
		return cmp.Or(cmp.Compare(y.weight, x.weight), cmp.Compare(min(y.rank, 3), min(x.rank, 3)))
	})
	return order[0]
}
