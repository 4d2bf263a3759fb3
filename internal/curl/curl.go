// Package curl reads command lines of curl, as browsers and API clients copy them, and makes the request that a server
// would receive. It runs nothing and opens no file. Of the flags it keeps -X, -H, -A, -b, -u, -I, --json and --url, and lists
// the others. Its errors and lists quote no value of a line, which may be a credential.
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
)

// MaxBytes bounds a command line. Cookies can make it long.
const MaxBytes = 64 << 10

// Parse reads a command line. The error says what is wrong with it, where, and what would be right.
func Parse(line string) (*Request, error) {
	switch {
	case len(line) > MaxBytes:
		return nil, fmt.Errorf("the command has %d bytes: must have at most %d", len(line), MaxBytes)
	case strings.IndexByte(line, 0) >= 0:
		return nil, errors.New("the command has a NUL byte: paste it as text")
	case strings.Contains(line, ` ^"`):
		return nil, errors.New(`the line is quoted for cmd.exe, with ^: in the browser, choose "Copy as cURL (bash)"`)
	case strings.Contains(line, " `\n"), strings.Contains(line, " `\r\n"):
		return nil, errors.New(`the line is continued for PowerShell, with a backquote: in the browser, choose "Copy as cURL (bash)", or write the command on one line`)
	}
	list, rest, err := words(line)
	if err != nil {
		return nil, err
	}
	for len(list) > 0 && (list[0].text == "$" || list[0].text == "%") { // a prompt
		list = list[1:]
	}
	if len(list) == 0 || !isCurl(list[0].text) {
		return nil, errors.New(`the command must begin with curl: in the browser's network panel, choose "Copy as cURL (bash)"`)
	}
	p := parser{args: list[1:], Request: Request{Header: make(http.Header)}}
	for len(p.args) > 0 {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if rest != "" {
		p.ignore("what follows the command, from %s on", rest)
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return &p.Request, nil
}

func isCurl(word string) bool {
	word = strings.ToLower(word[strings.LastIndexAny(word, `/\`)+1:])
	return word == "curl" || word == "curl.exe"
}

// A parser reads the arguments of curl.
type parser struct {
	Request
	args []word

	urls     []word
	onlyURLs bool   // after --
	method   string // that curl chooses if there is no -X
	get      bool   // -G
	agent    *string
	cookies  []string
	user     string // Authorization
	json     string // Content-Type and Accept of --json
}

func (p *parser) ignore(format string, args ...any) {
	p.Ignored = append(p.Ignored, fmt.Sprintf(format, args...))
}

// next reads an argument, and what belongs to it.
func (p *parser) next() error {
	arg := p.args[0]
	p.args = p.args[1:]
	switch text := arg.text; {
	case p.onlyURLs, text == "-", !strings.HasPrefix(text, "-"):
		p.urls = append(p.urls, arg)
	case text == "--":
		p.onlyURLs = true
	case strings.HasPrefix(text, "--"):
		name, _, hasSign := strings.Cut(text[2:], "=")
		shown := "--" + name
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || len(name) > 40 { // it may be a part of a credential
			shown = "a flag"
		}
		if hasSign { // curl has no such flag
			p.ignore("%s at %s", shown, arg.at)
			return nil
		}
		flag, hasValue := meant(name)
		return p.flag(flag, shown, arg.at, "", hasValue)
	default: // a group of flags of one letter, such as -sSXPOST
		for i := 1; i < len(text); i++ {
			flag, hasValue := letters[text[i]], strings.IndexByte(valuedLetters, text[i]) >= 0
			if !hasValue && strings.IndexByte(aloneLetters, text[i]) < 0 {
				p.ignore("a flag at %s", arg.at)
				return nil
			}
			if err := p.flag(flag, "-"+text[i:i+1], arg.at, text[i+1:], hasValue); hasValue || err != nil {
				return err
			}
		}
	}
	return nil
}

// flag reads a flag and its value, which is the next argument if it is "". shown is how the line writes the flag.
func (p *parser) flag(name, shown, at, value string, hasValue bool) error {
	if hasValue && value == "" {
		if len(p.args) == 0 {
			return fmt.Errorf("%s at %s needs a value after it: paste the whole command", shown, at)
		}
		value = p.args[0].text
		p.args = p.args[1:]
	}
	if err := p.apply(name, shown, at, value); err != nil {
		return fmt.Errorf("%s at %s: %w", shown, at, err)
	}
	return nil
}

func (p *parser) apply(name, shown, at, value string) error {
	switch {
	case name == "request":
		p.Method = value
		return checkMethod(value)
	case name == "header":
		return p.header(shown, value)
	case name == "user-agent":
		p.agent = &value
	case name == "cookie" && strings.Contains(value, "="):
		p.cookies = append(p.cookies, value)
	case name == "cookie":
		p.ignore("%s without a =, which names a file: no file is opened", shown)
	case name == "user":
		if !strings.Contains(value, ":") {
			value += ":"
			p.ignore("%s without a password, for which curl would ask: the password is taken as empty", shown)
		}
		p.user = basic(value)
	case name == "head":
		p.method = "HEAD"
	case name == "json":
		p.method, p.json = cmp.Or(p.method, "POST"), "application/json"
		p.Length += int64(len(value))
	case name == "url":
		p.urls = append(p.urls, word{value, at})
	case name == "next":
		return errors.New("begins a second request: paste the command of one request")
	case name == "upload-file":
		p.method = "PUT"
		p.ignore("%s: the request is taken as a PUT, without the body", shown)
	case bodies[name]:
		p.method = cmp.Or(p.method, "POST")
		p.ignore("%s: the request is taken as a POST, without the body", shown)
	default:
		p.get = p.get || name == "get"
		p.ignore("%s", shown)
	}
	return nil
}

func basic(userAndPassword string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(userAndPassword))
}

// header reads the value of -H as curl does: "Name: value", "Name;" for an empty one, and "Name:" for none.
func (p *parser) header(shown, line string) error {
	name, value, hasColon := strings.Cut(line, ":")
	switch {
	case strings.HasPrefix(line, "@"):
		p.ignore("%s with a file of headers: no file is opened", shown)
	case name == "" && hasColon: // of HTTP/2: the address has it
	case !hasColon && strings.HasSuffix(line, ";"):
		return add(&p.Request, strings.TrimSuffix(line, ";"), "")
	case hasColon && strings.TrimSpace(value) == "":
		p.setDefault(name) // no values: finish adds none
	default:
		return p.AddHeader(line)
	}
	return nil
}

// finish puts together what the flags said.
func (p *parser) finish() error {
	switch len(p.urls) {
	case 0:
		return errors.New("the command has no address: paste the whole command")
	case 1:
	default:
		return fmt.Errorf("the command has %d addresses, the second one at %s: must have one; quote what has spaces", len(p.urls), p.urls[1].at)
	}
	p.URL = strings.NewReplacer(`\[`, "[", `\]`, "]", `\{`, "{", `\}`, "}").Replace(p.urls[0].text) // browsers keep curl from expanding them
	if !strings.Contains(p.URL, "://") {
		p.URL = "http://" + p.URL
	}
	u, err := parseURL(p.URL)
	if err != nil {
		return fmt.Errorf("%s: %w", p.urls[0].at, err)
	}
	if u.User != nil {
		password, _ := u.User.Password()
		p.user = cmp.Or(p.user, basic(u.User.Username()+":"+password))
		u.User = nil
		p.URL = u.String()
	}
	if p.get && p.method != "HEAD" {
		p.method = "GET"
	}
	p.Method = cmp.Or(p.Method, p.method, "GET")
	agent := "curl"
	if p.agent != nil {
		agent = *p.agent
	}
	for name, value := range map[string]string{
		"Authorization": p.user, "Cookie": strings.Join(p.cookies, ";"), "User-Agent": agent, "Content-Type": p.json, "Accept": cmp.Or(p.json, "*/*"),
	} {
		if value != "" {
			if err := checkValue(value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p.setDefault(name, strings.Trim(value, " \t"))
		}
	}
	for name, values := range p.Header {
		if len(values) == 0 {
			delete(p.Header, name)
		}
	}
	return nil
}

// setDefault sets a header that no -H has set or removed.
func (p *parser) setDefault(name string, values ...string) {
	name = http.CanonicalHeaderKey(name)
	if _, set := p.Header[name]; !set {
		p.Header[name] = values
	}
}
