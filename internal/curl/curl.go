// Package curl reads command lines of curl, as browsers and API clients copy them, and makes the request that a server
// would receive. It runs nothing and opens no file.
//
//	c, err := curl.Parse(`curl 'https://example.com/members' -H 'X-Forwarded-For: 192.0.2.1'`)
//	r, err := c.HTTP(ctx, "203.0.113.9")
package curl

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// MaxBytes bounds a command line. Cookies can make it long.
const MaxBytes = 64 << 10

// Parse reads a command line. The error says what is wrong with it and what would be right.
func Parse(line string) (*Request, error) {
	if len(line) > MaxBytes {
		return nil, fmt.Errorf("the command has %d bytes: must have at most %d", len(line), MaxBytes)
	}
	list, rest, err := words(line)
	if err != nil {
		return nil, err
	}
	for _, word := range list {
		if strings.IndexByte(word, 0) >= 0 {
			return nil, errors.New("the command has a NUL byte: paste it as text")
		}
	}
	for len(list) > 0 && (list[0] == "$" || list[0] == "%") { // a prompt
		list = list[1:]
	}
	if len(list) == 0 || !isCurl(list[0]) {
		return nil, errors.New(`the command must begin with curl: in the browser's network panel, choose "Copy as cURL (bash)"`)
	}
	p := parser{args: list[1:], Request: Request{Header: make(http.Header)}}
	if rest != "" {
		end := 1 + strings.IndexAny(rest, "|;&<>#")
		p.ignore("what follows the command, from " + rest[:end] + " on") // not shown: a cookie without quotes may go on there
	}
	if err := p.parse(); err != nil {
		return nil, err
	}
	return &p.Request, nil
}

// withoutValue returns a flag such as header=X without what follows the =, which may be a credential. curl has no flags of
// this form.
func withoutValue(flag string) string {
	if name, _, ok := strings.Cut(flag, "="); ok {
		return name + "=…"
	}
	return flag
}

// firstOf returns the first character of a group of flags. The others may be a credential.
func firstOf(group string) string {
	_, size := utf8.DecodeRuneInString(group)
	return group[:size]
}

func isCurl(word string) bool {
	word = strings.ToLower(word[strings.LastIndexAny(word, `/\`)+1:])
	return word == "curl" || word == "curl.exe"
}

// A parser reads the arguments of curl.
type parser struct {
	Request
	args []string

	urls    []string
	data    []string
	query   []string // of --url-query
	cookies []string
	removed map[string]bool // headers that -H 'Name:' removes
	hasData bool
	hasHost bool   // the first Host header counts
	asIs    bool   // --path-as-is
	literal bool   // -g: braces and brackets of the address are not expanded
	later   bool   // --digest and others: the first request has no password
	noAgent bool   // -A ''
	get     bool   // -G
	head    bool   // -I
	upload  bool   // -T
	kind    string // Content-Type of the data
	accept  string
	zip     bool
	user    string // Authorization
	agent   string
	referer string
	span    string // Range
}

func (p *parser) ignore(what string) { p.Ignored = append(p.Ignored, what) }

func (p *parser) parse() error {
	p.removed = make(map[string]bool)
	onlyURLs := false
	for len(p.args) > 0 {
		arg := p.args[0]
		p.args = p.args[1:]
		var err error
		switch {
		case onlyURLs || arg == "-" || !strings.HasPrefix(arg, "-"):
			p.urls = append(p.urls, arg)
		case arg == "--":
			onlyURLs = true
		case strings.HasPrefix(arg, "--"):
			err = p.long(arg[2:])
		default:
			err = p.short(arg[1:])
		}
		if err != nil {
			return err
		}
	}
	return p.finish()
}

func (p *parser) value(flag string) (string, error) {
	if len(p.args) == 0 {
		return "", fmt.Errorf("%s needs a value after it: paste the whole command", flag)
	}
	v := p.args[0]
	p.args = p.args[1:]
	return v, nil
}

func (p *parser) long(name string) error {
	var value string
	if takesValue[name] {
		var err error
		if value, err = p.value("--" + name); err != nil {
			return err
		}
	}
	return p.apply(name, value)
}

// short reads a group of flags of one letter, such as -sSXPOST.
func (p *parser) short(group string) error {
	for i := 0; i < len(group); i++ {
		name, known := shortFlags[group[i]]
		if !known {
			p.ignore("-" + logtext.Show(firstOf(group[i:]), 32))
			return nil
		}
		if takesValue[name] {
			value := group[i+1:]
			if value == "" {
				var err error
				if value, err = p.value("-" + group[i:i+1]); err != nil {
					return err
				}
			}
			return p.apply(name, value)
		}
		if err := p.apply(name, ""); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) apply(name, value string) error {
	switch name {
	case "request":
		p.Method = value
	case "header":
		return p.header(value)
	case "user-agent":
		p.agent, p.noAgent = value, value == ""
	case "referer":
		p.referer = strings.TrimSuffix(value, ";auto")
	case "cookie":
		if !strings.Contains(value, "=") {
			p.ignore("--cookie without a =, which names a file: no file is opened") // not shown: it may be a cookie's value
			return nil
		}
		p.cookies = append(p.cookies, value)
	case "user":
		if !strings.Contains(value, ":") {
			value += ":"
			p.ignore("--user without a password, for which curl would ask: the password is taken as empty")
		}
		p.user = "Basic " + base64.StdEncoding.EncodeToString([]byte(value))
	case "oauth2-bearer":
		p.user = "Bearer " + value
	case "range":
		if !strings.Contains(value, "-") {
			value += "-"
		}
		p.span = "bytes=" + value
	case "path-as-is":
		p.asIs = true
	case "globoff":
		p.literal = true
	case "digest", "ntlm", "negotiate", "anyauth":
		p.later = true
		p.ignore("--" + name + ": the first request, without a password, is explained")
	case "data", "data-ascii", "data-binary", "data-raw", "data-urlencode", "json", "url-query":
		return p.addData(name, value)
	case "form", "form-string":
		p.hasData, p.kind = true, "multipart/form-data"
		p.Length += int64(len(value))
	case "upload-file":
		p.upload = true
		p.ignore("--upload-file " + logtext.Show(value, 64) + ": no file is opened, so the body is taken as empty. Where the address ends with a slash or has no path, curl would add the name of the file to it, which is not done here")
	case "time-cond":
		p.ignore("--time-cond " + logtext.Show(value, 64) + ": the request is taken without the If-Modified-Since or If-Unmodified-Since header that curl would send")
	case "continue-at":
		p.ignore("--continue-at " + logtext.Show(value, 64) + ": the request is taken without the Range header that curl would send")
	case "head":
		p.head = true
	case "get":
		p.get = true
	case "compressed":
		p.zip = true
	case "url":
		p.urls = append(p.urls, value)
	case "next":
		return errors.New("the command has --next, which begins a second request: paste the command of one request")
	case "config":
		p.ignore("--config " + logtext.Show(value, 64) + ": no file is opened")
	default:
		if !silent[name] {
			p.ignore("--" + logtext.Show(withoutValue(name), 32))
		}
	}
	return nil
}

// header reads the value of -H as curl does: "Name: value", "Name;" for an empty one, and "Name:" for none.
func (p *parser) header(line string) error {
	if strings.HasPrefix(line, "@") {
		p.ignore("--header " + logtext.Show(line, 64) + ": no file is opened")
		return nil
	}
	if strings.HasPrefix(line, ":") { // of HTTP/2: the address has it
		return nil
	}
	if name, empty := strings.CutSuffix(line, ";"); empty && !strings.Contains(line, ":") {
		return add(&p.Request, name, "")
	}
	if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(value) == "" {
		p.removed[http.CanonicalHeaderKey(name)] = true
		return nil
	}
	if name, _, _ := strings.Cut(line, ":"); strings.EqualFold(name, "Host") {
		if p.hasHost {
			return nil
		}
		p.hasHost = true
	}
	return p.AddHeader(line)
}

// finish puts together what the flags said.
func (p *parser) finish() error {
	switch len(p.urls) {
	case 0:
		return errors.New("the command has no address: paste the whole command")
	case 1:
		p.URL = p.urls[0]
	default:
		return fmt.Errorf("the command has %d addresses, %s and %s: must have one; quote an address that has spaces", len(p.urls), logtext.Show(p.urls[0], 64), logtext.Show(p.urls[1], 64))
	}
	if !strings.Contains(p.URL, "://") {
		p.URL = "http://" + p.URL
	}
	p.URL = p.sent(p.URL)
	query := p.query
	if p.get {
		query = append(query, p.data...)
	}
	if len(query) > 0 {
		address, _, _ := strings.Cut(p.URL, "#")
		separator := "?"
		if strings.Contains(address, "?") {
			separator = "&"
		}
		p.URL = address + separator + strings.Join(query, "&")
	}
	if p.get {
		p.hasData, p.Length = false, 0
	}
	method := "GET"
	switch {
	case p.head:
		method = "HEAD"
	case p.upload:
		method = "PUT"
	case p.hasData:
		method = "POST"
	}
	p.Method = cmp.Or(p.Method, method)
	if !requestheader.IsToken(p.Method) {
		return fmt.Errorf("method %q: must be a word such as GET", logtext.Show(p.Method, 64))
	}
	if p.hasData {
		p.setDefault("Content-Type", cmp.Or(p.kind, "application/x-www-form-urlencoded"))
	}
	if p.zip {
		p.setDefault("Accept-Encoding", "deflate, gzip, br, zstd")
	}
	if len(p.cookies) > 0 {
		p.setDefault("Cookie", strings.Join(p.cookies, ";"))
	}
	u, err := parseURL(p.URL)
	if err != nil {
		return err
	}
	if u.User != nil && p.user == "" {
		password, _ := u.User.Password()
		p.user = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	if u.User != nil {
		u.User = nil
		p.URL = u.String()
	}
	if p.later {
		p.user = ""
	}
	if !p.noAgent {
		p.agent = cmp.Or(p.agent, "curl")
	}
	for _, d := range []struct{ name, value string }{
		{"Authorization", p.user}, {"Referer", p.referer}, {"Range", p.span},
		{"User-Agent", p.agent}, {"Accept", cmp.Or(p.accept, "*/*")},
	} {
		if d.value != "" {
			p.setDefault(d.name, d.value)
		}
	}
	for name, values := range p.Header {
		for i, v := range values {
			if err := checkValue(name, v); err != nil {
				return err
			}
			values[i] = strings.Trim(v, " \t")
		}
	}
	return nil
}

// setDefault sets a header that no -H has set or removed.
func (p *parser) setDefault(name, value string) {
	if p.Header[name] == nil && !p.removed[name] {
		p.Header[name] = []string{value}
	}
}
