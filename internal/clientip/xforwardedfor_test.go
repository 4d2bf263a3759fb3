package clientip

import (
	"strings"
	"testing"
)

func TestXForwardedFor(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, tt := range []chainTest{
		{"No lines have no entries", nil, ""},
		{"An empty line has no entries", []string{""}, ""},
		{"A line of whitespace has no entries", []string{" \t "}, ""},
		{"A line of commas has no entries", []string{" ,\t,,"}, ""},
		{"One address is one entry", []string{"192.0.2.1"}, "192.0.2.1"},
		{"A list is read from the right", []string{"192.0.2.1, 192.0.2.2,192.0.2.3"}, "192.0.2.3 192.0.2.2 192.0.2.1"},
		{"Lines are one list", []string{"192.0.2.1", "192.0.2.2, 192.0.2.3"}, "192.0.2.3 192.0.2.2 192.0.2.1"},
		{"Empty lines between are skipped", []string{"192.0.2.1", "", "192.0.2.2", " "}, "192.0.2.2 192.0.2.1"},
		{"Empty elements are skipped", []string{",192.0.2.1,, \t,192.0.2.2,"}, "192.0.2.2 192.0.2.1"},
		{"Ports and brackets are read", []string{"192.0.2.1:80, [2001:db8::1]:80, 2001:db8::2"}, "2001:db8::2 2001:db8::1 192.0.2.1"},
		{"Mapped IPv4 is unmapped", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"An invalid entry hides what is left of it", []string{"192.0.2.1, unknown, 192.0.2.3"}, "192.0.2.3 invalid"},
		{"An invalid entry hides the lines before", []string{"192.0.2.1", "evil", "192.0.2.3"}, "192.0.2.3 invalid"},
		{"A comma in a zone separates entries", []string{"fe80::1%a,192.0.2.1"}, "192.0.2.1 fe80::1"},
		{"Quotes do not group", []string{`"192.0.2.1, 192.0.2.2"`}, "invalid"},
		{"A semicolon does not separate", []string{"192.0.2.1; 192.0.2.2"}, "invalid"},
		{"A space does not separate", []string{"192.0.2.1 192.0.2.2"}, "invalid"},
		{"A line feed does not separate", []string{"192.0.2.1\n192.0.2.2"}, "invalid"},
		{"A forged entry of 1 MiB does not reach the proxy's", []string{long + ", 192.0.2.1"}, "192.0.2.1 invalid"},
		{"A line of 1 MiB is one invalid entry", []string{"192.0.2.1", long}, "invalid"},
		{"Whitespace of 64 KiB is one invalid entry", []string{"192.0.2.1," + strings.Repeat(" ", 64<<10)}, "invalid"},
		{"An element of 256 bytes is read", []string{"192.0.2.1," + strings.Repeat(" ", 247) + "192.0.2.2"}, "192.0.2.2 192.0.2.1"},
		{"An element of 257 bytes is invalid", []string{"192.0.2.1," + strings.Repeat(" ", 248) + "192.0.2.2"}, "invalid"},
		{"A first element of 257 bytes is invalid", []string{strings.Repeat(" ", 248) + "192.0.2.2"}, "invalid"},
		{"63 empty elements are skipped", []string{"192.0.2.1" + strings.Repeat(",", 63)}, "192.0.2.1"},
		{"64 empty elements are too many", []string{"192.0.2.1" + strings.Repeat(",", 64)}, "invalid"},
		{"64 empty elements alone have no entries", []string{strings.Repeat(",", 63)}, ""},
		{"65 empty elements alone are too many", []string{strings.Repeat(",", 64)}, "invalid"},
		{"1 MiB of commas is one invalid entry", []string{strings.Repeat(",", 1<<20)}, "invalid"},
		{"64 lines are read", repeatLine("::1", 64), repeat("::1", 64)},
		{"The 65th line is invalid", repeatLine("::1", 65), repeat("::1", 64) + " invalid"},
		{"The 65th line is invalid though empty", append([]string{""}, repeatLine("::1", 64)...), repeat("::1", 64) + " invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.check(t, XForwardedFor(tt.lines)) })
	}
}

func repeatLine(line string, n int) []string {
	return strings.Fields(repeat(line, n))
}

func repeat(entry string, n int) string {
	return strings.TrimSuffix(strings.Repeat(entry+" ", n), " ")
}

// FuzzXForwardedFor takes the lines of the header as lines.
func FuzzXForwardedFor(f *testing.F) {
	f.Fuzz(func(t *testing.T, header string) {
		lines := strings.Split(header, "\n")
		got := entries(XForwardedFor(lines))
		if want := slowXForwardedFor(lines); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		for _, proxied := range []string{header + ", 192.0.2.99", header + "\n192.0.2.99"} {
			addr, _, err := FromCount(1, XForwardedFor(strings.Split(proxied, "\n")))
			if err != nil || addr.String() != "192.0.2.99" {
				t.Errorf("the proxy's entry is %v, %v", addr, err)
			}
		}
	})
}

// slowXForwardedFor is entries(XForwardedFor(lines)) by splitting everything
// first.
func slowXForwardedFor(lines []string) string {
	var elements []*entry
	for s := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if len(s) <= 256 && strings.Trim(s, " \t") == "" {
			elements = append(elements, nil)
			continue
		}
		var e entry
		e.addr, e.ok = slowParse(s)
		elements = append(elements, &e)
	}
	return slowEntries(elements)
}
