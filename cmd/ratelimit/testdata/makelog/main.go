// Command makelog writes an access log in the combined format, for examples and tests of simulations. The log is made up:
// nobody sent these requests. The same flags make the same log.
//
//	go run ./cmd/ratelimit/testdata/makelog -lines 200000 > access.log
//
// A few of its clients send most requests. It has pages with their pictures, three offices with an address each, a scraper,
// a program that guesses passwords, and some lines that are no requests. See README.md.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

func main() {
	var m maker
	start := flag.String("start", "2026-05-23T00:00:00Z", "`time` of the first line")
	flag.IntVar(&m.lines, "lines", 200_000, "about how many lines")
	flag.IntVar(&m.clients, "clients", 5_000, "how many clients, at most")
	flag.DurationVar(&m.length, "for", 24*time.Hour, "time from the first line to the last")
	flag.Uint64Var(&m.seed, "seed", 1, "another seed makes another log")
	flag.Parse()
	var err error
	if m.start, err = time.Parse(time.RFC3339, *start); err != nil || flag.NArg() > 0 || m.lines < 1 || m.clients < 10 || m.length < time.Second {
		fmt.Fprintln(os.Stderr, "makelog: -start must be like 2026-05-23T00:00:00Z, -lines at least 1, -clients at least 10, -for at least 1s, and there are no arguments")
		os.Exit(2)
	}
	if err := m.make(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "makelog:", err)
		os.Exit(1)
	}
}

// A maker makes a log.
type maker struct {
	start          time.Time
	length         time.Duration
	lines, clients int
	seed           uint64

	*rand.Rand
	zipf    *rand.Zipf
	out     *bufio.Writer
	written int
	stamp   []byte // " - - [time] "
	line    []byte
}

const (
	scraper = "203.0.113.77"
	guesser = "198.51.100.23"

	agent = "makelog (made up, see testdata/makelog)"
)

// offices are addresses that many people share.
var offices = []string{"203.0.113.10", "203.0.113.20", "2001:db8:0:77::1"}

var (
	pages    = []string{"/", "/items", "/items/17", "/items/4711", "/search?q=shoes", "/search?q=red+hat", "/cart", "/about"}
	pictures = []string{"/static/app.js", "/static/app.css", "/static/logo.svg", "/img/1.webp", "/img/2.webp", "/img/3.webp", "/img/4.webp"}
)

func (m *maker) make(w io.Writer) error {
	m.Rand = rand.New(rand.NewPCG(m.seed, 18))
	m.zipf = rand.NewZipf(m.Rand, 1.15, 20, uint64(m.clients-1))
	m.out = bufio.NewWriterSize(w, 1<<20)
	seconds := int(m.length / time.Second)
	for s := range seconds {
		at := m.start.Add(time.Duration(s) * time.Second)
		m.stamp = fmt.Appendf(m.stamp[:0], " - - [%s] ", at.Format("02/Jan/2006:15:04:05 -0700"))
		m.second(s, seconds)
	}
	return m.out.Flush()
}

// second writes the lines of a second.
func (m *maker) second(s, of int) {
	// More by day than by night. The sum over a day is 1.
	day := 1 - 0.7*math.Cos(2*math.Pi*(float64(s)/86400-0.1))
	mean := float64(m.lines) / float64(of) * day / 3.3 // a visit has about 3.3 lines
	for n := m.poisson(mean * 0.9); n > 0; n-- {
		m.visit(m.client())
	}
	if n := m.poisson(mean * 0.06); n > 0 {
		for range n {
			m.visit(offices[m.IntN(len(offices))])
		}
	}
	part := float64(s) / float64(of)
	if part > 0.58 && part < 0.63 { // the scraper's hour
		for range 1 + m.poisson(float64(m.lines)/float64(of)*0.8) {
			m.write(scraper, "GET", "/items/"+strconv.Itoa(m.IntN(100_000)), 200, 4000+m.IntN(3000))
		}
	}
	if part > 0.13 && part < 0.15 && s%3 == 0 {
		m.write(guesser, "POST", "/login", 401, 90)
	}
	if m.IntN(20_000) == 0 {
		m.out.WriteString("203.0.113.99")
		m.out.Write(m.stamp)
		m.out.WriteString(`"\x16\x03\x01\x02" 400 157 "-" "-"` + "\n")
	}
}

func (m *maker) poisson(mean float64) (n int) {
	for ; mean > 20; mean -= 20 { // the sum of several is one, too
		n += m.poisson(20)
	}
	limit, product := math.Exp(-mean), m.Float64()
	for product > limit {
		n++
		product *= m.Float64()
	}
	return n
}

// client returns the address of a client. A sixth have IPv6.
func (m *maker) client() string {
	n := int(m.zipf.Uint64())
	if n%6 == 5 {
		return fmt.Sprintf("2001:db8:%x:%x::%x", n>>12&0xffff, n&0xfff, 1+m.IntN(3))
	}
	return "198." + strconv.Itoa(18+n>>16&1) + "." + strconv.Itoa(n>>8&255) + "." + strconv.Itoa(n&255)
}

// visit writes the requests of a click: some API calls, a page with its pictures, or a login.
func (m *maker) visit(addr string) {
	switch m.IntN(100) {
	case 0, 1:
		for m.IntN(7) == 0 { // some mistype their password
			m.write(addr, "POST", "/login", 401, 90)
		}
		m.write(addr, "POST", "/login", 302, 0)
	case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21:
		m.write(addr, "GET", pages[m.IntN(len(pages))], 200, 2000+m.IntN(20_000))
		for _, picture := range pictures {
			status := 200
			if m.IntN(3) == 0 {
				status = 304
			}
			m.write(addr, "GET", picture, status, m.IntN(50_000))
		}
	default:
		for range 1 + m.IntN(3) {
			status := 200
			if m.IntN(50) == 0 {
				status = 404
			}
			m.write(addr, "GET", pages[m.IntN(len(pages))], status, 200+m.IntN(4000))
		}
	}
}

func (m *maker) write(addr, method, target string, status, size int) {
	if status == 304 {
		size = 0
	}
	l := append(m.line[:0], addr...)
	l = append(l, m.stamp...)
	l = append(append(append(append(append(l, '"'), method...), ' '), target...), ` HTTP/1.1" `...)
	l = strconv.AppendInt(l, int64(status), 10)
	l = strconv.AppendInt(append(l, ' '), int64(size), 10)
	l = append(l, ` "https://shop.example/" "`+agent+`"`+"\n"...)
	m.line = l
	m.out.Write(l)
	m.written++
}
