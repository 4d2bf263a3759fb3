package clientip

import (
	"regexp"
	"strings"
	"testing"
)

func TestForwarded(t *testing.T) {
	for _, tt := range []chainTest{
		{"No lines have no entries", nil, ""},
		{"An empty line has no entries", []string{""}, ""},
		{"A line of commas has no entries", []string{" ,\t,,"}, ""},
		{"A token is an IPv4 address", []string{"for=192.0.2.1"}, "192.0.2.1"},
		{"A quoted string is an IPv4 address", []string{`for="192.0.2.1"`}, "192.0.2.1"},
		{"A quoted string is an IPv4 address with a port", []string{`for="192.0.2.1:4711"`}, "192.0.2.1"},
		{"A quoted string is an IPv6 address in brackets", []string{`for="[2001:db8::1]"`}, "2001:db8::1"},
		{"A quoted string is an IPv6 address with a port", []string{`for="[2001:db8::1]:4711"`}, "2001:db8::1"},
		{"Mapped IPv4 is unmapped", []string{`for="[::ffff:192.0.2.1]"`}, "192.0.2.1"},
		{"A zone is dropped", []string{`for="[fe80::1%a,b;c]"`}, "fe80::1"},
		{"Names of parameters have no case", []string{"FOR=192.0.2.1, fOr=192.0.2.2"}, "192.0.2.2 192.0.2.1"},
		{"Other parameters are ignored", []string{"by=203.0.113.43;for=192.0.2.1;proto=https;host=a.example"}, "192.0.2.1"},
		{"Names that contain for are others", []string{"forx=evil;for=192.0.2.1;xfor=evil"}, "192.0.2.1"},
		{"A list is read from the right", []string{"for=192.0.2.1, for=192.0.2.2,for=192.0.2.3"}, "192.0.2.3 192.0.2.2 192.0.2.1"},
		{"Lines are one list", []string{"for=192.0.2.1", "for=192.0.2.2, for=192.0.2.3"}, "192.0.2.3 192.0.2.2 192.0.2.1"},
		{"Whitespace around separators is ignored", []string{" for=192.0.2.1\t; proto=http ,\tfor=192.0.2.2 "}, "192.0.2.2 192.0.2.1"},
		{"Empty elements are skipped", []string{",for=192.0.2.1, ,\t,for=192.0.2.2,"}, "192.0.2.2 192.0.2.1"},
		{"Empty parameters are ignored", []string{";;for=192.0.2.1; ;"}, "192.0.2.1"},
		{"A quoted comma does not separate", []string{`host="a, for=198.51.100.1, b";for=192.0.2.1`}, "192.0.2.1"},
		{"A quoted semicolon does not separate", []string{`host="a;for=198.51.100.1";for=192.0.2.1`}, "192.0.2.1"},
		{"An escaped quote does not close", []string{`host="\", for=198.51.100.1, \"";for=192.0.2.1`}, "192.0.2.1"},
		{"An escaped quote does not close before a comma", []string{`for=192.0.2.1, host="a\\\", for=198.51.100.1";for=192.0.2.2`}, "192.0.2.2 192.0.2.1"},
		{"An escaped backslash lets a quote close before a comma", []string{`for=192.0.2.1;host="a\\", for=192.0.2.2;host="\\\\"`}, "192.0.2.2 192.0.2.1"},
		{"An escaped backslash does not escape", []string{`host="\\";for=192.0.2.1`}, "192.0.2.1"},
		{"Escaped characters are themselves", []string{`for="\1\92.0.2\.1"`}, "192.0.2.1"},
		{"An empty quoted string is a value", []string{`host="";for=192.0.2.1`}, "192.0.2.1"},
		{"Quoted bytes need not be UTF-8", []string{"host=\"\xff\xfe\";for=192.0.2.1"}, "192.0.2.1"},
		{"A quoted tab is allowed", []string{"host=\"\t\";for=192.0.2.1"}, "192.0.2.1"},

		{"An invalid entry hides what is left of it", []string{"for=192.0.2.1, for=_x, for=192.0.2.3"}, "192.0.2.3 invalid"},
		{"An invalid entry hides the lines before", []string{"for=192.0.2.1", "for=_x", "for=192.0.2.3"}, "192.0.2.3 invalid"},

		{"An open quote does not reach the next line", []string{`for="192.0.2.1`, "for=192.0.2.2"}, "192.0.2.2 invalid"},
		{"Quotes do not close across lines", []string{`for="`, `";for=192.0.2.1`}, "invalid"},

		{"A line of 8 KiB is read", []string{"for=192.0.2.1;a=" + strings.Repeat("x", 8<<10-16)}, "192.0.2.1"},
		{"A longer line is invalid", []string{"for=192.0.2.1;a=" + strings.Repeat("x", 8<<10-15)}, "invalid"},
		{"A line of 64 KiB of whitespace is invalid", []string{strings.Repeat(" ", 64<<10)}, "invalid"},
		{"A forged line of 1 MiB does not reach the proxy's", []string{strings.Repeat("x", 1<<20), "for=192.0.2.1"}, "192.0.2.1 invalid"},
		{"63 empty elements are skipped", []string{"for=192.0.2.1" + strings.Repeat(",", 63)}, "192.0.2.1"},
		{"64 empty elements are too many", []string{"for=192.0.2.1" + strings.Repeat(",", 64)}, "invalid"},
		{"8 KiB of commas are one invalid entry", []string{strings.Repeat(",", 8<<10)}, "invalid"},
		{"The 65th line is invalid", repeatLine("for=192.0.2.1", 65), repeat("192.0.2.1", 64) + " invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.check(t, Forwarded(tt.lines)) })
	}
	for _, line := range []string{
		// no address
		"for=192.0.2.1, for=unknown", "for=_gazonk", `for="192.0.2.1:_gazonk"`, `for="2001:db8::1"`, `for="::ffff:192.0.2.1"`, `for="[192.0.2.1]"`,
		"for=0.0.0.0", `for="[::]:80"`, `for=""`, `for=" 192.0.2.1"`, `for="192.0.2.1, 192.0.2.2"`, "for=localhost",
		// no for, or two of them
		"for=192.0.2.1, proto=https", "for=192.0.2.1,;", "for=192.0.2.1;for=192.0.2.2", "for=192.0.2.1;For=192.0.2.1",
		// quotes that spoil their line
		`for="192.0.2.1, for=192.0.2.2`, `for=192.0.2.1, for="\`, `for=192.0.2.1, host=a"b", for=192.0.2.3`, `for="192.0.2.1"x`,
		// tokens that spoil their line
		"for=192.0.2.2, for=192.0.2.1:80", "for=[2001:db8::1], for=192.0.2.1", "for =192.0.2.1", "for= 192.0.2.1", "for=, for=192.0.2.1", "for, for=192.0.2.1",
		"=192.0.2.1", "for=192.0.2.1 proto=http", "192.0.2.1",
		// bytes that spoil their line
		"host=\"\x00\";for=192.0.2.1", "host=\"\\\x01\";for=192.0.2.1", "host=\"\x7f\";for=192.0.2.1", "for=192.0.2.1\x00", "for=192.0.2.\uff11",
	} {
		if got := entries(Forwarded([]string{line})); got != "invalid" {
			t.Errorf("%q: got %q, want one invalid entry", line, got)
		}
	}
}

// FuzzForwarded takes the lines of the header as lines.
func FuzzForwarded(f *testing.F) {
	f.Fuzz(func(t *testing.T, header string) {
		lines := strings.Split(header, "\n")
		got := entries(Forwarded(lines))
		if want := slowForwarded(lines); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		addr, _, err := FromCount(1, Forwarded(append(lines, "for=192.0.2.99")))
		if err != nil || addr.String() != "192.0.2.99" {
			t.Errorf("the proxy's line is %v, %v", addr, err)
		}
		// A line that a client spoils may cost the proxy's entry, but not forge
		// it.
		addr, _, err = FromCount(1, Forwarded(strings.Split(header+", for=192.0.2.99", "\n")))
		if err == nil && addr.String() != "192.0.2.99" {
			t.Errorf("the proxy's entry is %v", addr)
		}
	})
}

const (
	slowToken   = "[-!#$%&'*+.^_`|~0-9A-Za-z]+"
	slowQuoted  = `"(?:[\t !\x23-\x5b\x5d-~\x{80}-\x{10ffff}]|\\[\t -~\x{80}-\x{10ffff}])*"`
	slowPair    = `(` + slowToken + `)=(` + slowToken + `|` + slowQuoted + `)`
	slowElement = `[ \t]*(?:` + slowPair + `)?(?:[ \t]*;[ \t]*(?:` + slowPair + `)?)*[ \t]*`
)

var (
	slowLineRE     = regexp.MustCompile(`^` + slowElement + `(?:,` + slowElement + `)*$`)
	slowElementRE  = regexp.MustCompile(`^` + slowElement)
	slowPairRE     = regexp.MustCompile(slowPair)
	slowQuotedPair = regexp.MustCompile(`(?s)\\(.)`)
)

// slowForwarded is entries(Forwarded(lines)) by the grammar as regular
// expressions.
func slowForwarded(lines []string) string {
	var elements []*entry
	for _, line := range lines {
		if len(line) > 8192 || !slowLineRE.MatchString(line) {
			elements = append(elements, &entry{})
			continue
		}
		for {
			s := slowElementRE.FindString(line)
			elements = append(elements, slowForwardedElement(s))
			if s == line {
				break
			}
			line = line[len(s)+1:]
		}
	}
	return slowEntries(elements)
}

func slowForwardedElement(s string) *entry {
	if strings.Trim(s, " \t") == "" {
		return nil
	}
	var nodes []string
	for _, pair := range slowPairRE.FindAllStringSubmatch(s, -1) {
		if strings.ToLower(pair[1]) == "for" {
			nodes = append(nodes, pair[2])
		}
	}
	var e entry
	if len(nodes) == 1 {
		node := nodes[0]
		if node[0] == '"' {
			node = slowQuotedPair.ReplaceAllString(node[1:len(node)-1], "$1")
		}
		e.addr, e.ok = slowParseNode(node)
	}
	return &e
}
