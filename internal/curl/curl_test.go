package curl

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, line  string
		method, url string
		header      string // names and values, sorted, without User-Agent and Accept
		length      int64
		ignored     int
	}{
		{name: "plain", line: `curl "https://example.com/a?b=1&c=2"`, method: "GET", url: "https://example.com/a?b=1&c=2"},
		{name: "an address without quotes", line: `curl https://example.com/a?b=1&c=2`, method: "GET", url: "https://example.com/a?b=1", ignored: 1},
		{name: "without a scheme", line: `curl localhost:8080/x`, method: "GET", url: "http://localhost:8080/x"},
		{name: "a prompt and a path", line: `$ /usr/bin/curl example.com`, method: "GET", url: "http://example.com"},
		{name: "Chrome on Linux", line: "curl 'https://example.com/members?page=2' \\\n  -H 'accept: application/json' \\\n  -b 'session=abc; theme=dark' \\\n  -H $'x-name: it\\'s \\u0021' \\\n  -H 'sec-ch-ua: \"Chromium\";v=\"140\"' \\\n  --insecure",
			method: "GET", url: "https://example.com/members?page=2", header: `Cookie: session=abc; theme=dark|Sec-Ch-Ua: "Chromium";v="140"|X-Name: it's !`, ignored: 1},
		{name: "Chrome, posting JSON", line: "curl 'https://example.com/login' -H 'content-type: application/json' --data-raw '{\"user\":\"a\"}'",
			method: "POST", url: "https://example.com/login", header: `Content-Type: application/json`, ignored: 1},
		{name: "Firefox", line: "curl 'https://example.com/' --compressed -H 'User-Agent: Mozilla/5.0' -H 'Accept-Language: en-US,en;q=0.5' -H 'Accept-Encoding: gzip, deflate, br, zstd' -H 'Cookie: a=b'",
			method: "GET", url: "https://example.com/", header: `Accept-Encoding: gzip, deflate, br, zstd|Accept-Language: en-US,en;q=0.5|Cookie: a=b`, ignored: 1},
		{name: "Insomnia", line: "curl --request POST \\\r\n  --url https://example.com/search \\\r\n  --header 'Content-Type: application/x-www-form-urlencoded' \\\r\n  --data q=shoes \\\r\n  --data page=2",
			method: "POST", url: "https://example.com/search", header: `Content-Type: application/x-www-form-urlencoded`, ignored: 2},
		{name: "Postman", line: `curl --location 'https://example.com/v1' --header 'Authorization: Bearer e30.e30.' --form 'a="b"'`,
			method: "POST", url: "https://example.com/v1", header: `Authorization: Bearer e30.e30.`, ignored: 2},
		{name: "lost backslashes", line: "curl 'https://example.com/'\n -H 'a: b'\n", method: "GET", url: "https://example.com/", header: "A: b"},
		{name: "short flags in a group", line: `curl -sSLXDELETE -Ha:b example.com/1`, method: "DELETE", url: "http://example.com/1", header: "A: b", ignored: 3},
		{name: "-I", line: `curl -I example.com`, method: "HEAD", url: "http://example.com"},
		{name: "-G", line: `curl -G -d a=1 --data-urlencode 'b=x y' 'example.com/?c=1#f'`, method: "GET", url: "http://example.com/?c=1#f", ignored: 3},
		{name: "--json", line: `curl --json '{}' example.com`, method: "POST", url: "http://example.com", header: "Content-Type: application/json", length: 2},
		{name: "-T", line: `curl -T /etc/passwd example.com`, method: "PUT", url: "http://example.com", ignored: 1},
		{name: "-u", line: `curl -u alice:secret example.com`, method: "GET", url: "http://example.com", header: "Authorization: Basic YWxpY2U6c2VjcmV0"},
		{name: "a user in the address", line: `curl http://alice:secret@example.com/`, method: "GET", url: "http://example.com/", header: "Authorization: Basic YWxpY2U6c2VjcmV0"},
		{name: "-A and -e", line: `curl -A bot -e 'https://ref.example/' example.com`, method: "GET", url: "http://example.com", ignored: 1},
		{name: "names that are cut", line: `curl --oauth2 T -X PUT --heade 'A: b' --proxy-u c:d --compr example.com`, method: "PUT", url: "http://example.com", header: "A: b", ignored: 3},
		{name: "a name that begins two", line: `curl --reques PUT example.com`, method: "GET", url: "http://example.com", ignored: 1},
		{name: "-u above a user in the address", line: `curl -u alice:secret http://bob:x@example.com/`, method: "GET", url: "http://example.com/", header: "Authorization: Basic YWxpY2U6c2VjcmV0"},
		{name: "-G and -I", line: `curl -G -I example.com`, method: "HEAD", url: "http://example.com", ignored: 1},
		{name: "a semicolon in a header", line: `curl -H 'A: b;' example.com`, method: "GET", url: "http://example.com", header: "A: b;"},
		{name: "names that begin others", line: `curl --netrc --parallel --crlf --keepalive --head example.com`, method: "HEAD", url: "http://example.com", ignored: 4},
		{name: "files", line: `curl -d @/etc/passwd -b jar -H @h -K c example.com`, method: "POST", url: "http://example.com", ignored: 4},
		{name: "an @ in raw data", line: `curl --data-raw @a example.com`, method: "POST", url: "http://example.com", ignored: 1},
		{name: "no expansion", line: "curl \"example.com/$(id)`id`~\" -H \"a: \\$HOME $HOME $((1+1))\" -H b:~ -H c:{d,e}* -H f:<(g) -H h:${i:-j}", method: "GET", url: "http://example.com/$(id)`id`~",
			header: "A: $HOME $HOME $((1+1))|B: ~|C: {d,e}*|F: <(g)|H: ${i:-j}"},
		{name: "backslashes", line: "curl example.com/a%20\\'b -H \"a: \\b\\\"\\\\ c\\\nd\" -H 'e: \\f'", method: "GET", url: "http://example.com/a%20'b", header: "A: \\b\"\\ cd|E: \\f"},
		{name: "headers empty and removed", line: `curl -H 'X-Empty;' -H 'Accept:' -H 'X-None:' example.com`, method: "GET", url: "http://example.com", header: "X-Empty: "},
		{name: "of HTTP/2", line: `curl -H ':authority: example.com' example.com`, method: "GET", url: "http://example.com"},
		{name: "a pipe after it", line: `curl -s example.com | jq . > out`, method: "GET", url: "http://example.com", ignored: 2},
		{name: "redirections after it", line: `curl example.com 2>/dev/null`, method: "GET", url: "http://example.com", ignored: 1},
		{name: "a second command", line: `curl example.com; rm -rf /`, method: "GET", url: "http://example.com", ignored: 1},
		{name: "unknown flags", line: `curl --frobnicate -! --resolve a:1:b example.com`, method: "GET", url: "http://example.com", ignored: 3},
		{name: "after --", line: `curl -- example.com`, method: "GET", url: "http://example.com"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			var header []string
			for _, name := range slices.Sorted(maps.Keys(c.Header)) {
				for _, v := range c.Header[name] {
					if name != "User-Agent" && name != "Accept" {
						header = append(header, name+": "+v)
					}
				}
			}
			if c.Method != tt.method || c.URL != tt.url || strings.Join(header, "|") != tt.header || c.Length != tt.length || len(c.Ignored) != tt.ignored {
				t.Errorf("got %s %s %q, %d bytes, ignored %q", c.Method, c.URL, header, c.Length, c.Ignored)
			}
		})
	}
}

// The requests are those that curl 7.88 has sent for these lines of bash.
func TestWhatCurlSends(t *testing.T) {
	for _, tt := range []struct{ line, want string }{ // without User-Agent: curl, Accept: */* and Content-Type
		{`curl 'h/p?a\[\]=1&b=\{x\}'`, "GET /p?a[]=1&b={x} h"}, // as Chrome copies
		{`curl 'http://[::1]:80/p?a[]=1'`, "GET /p?a[]=1 [::1]:80"},
		{`curl -b a=b -H 'Cookie: c=d' h`, "GET / h Cookie: c=d"},
		{`curl -b a=b -H 'Cookie:' h`, "GET / h"},
		{`curl -b a=b -b c=d h`, "GET / h Cookie: a=b;c=d"},
		{`curl -A '' h`, "GET / h User-Agent: none"},
		{`curl -A '' -A x h`, "GET / h User-Agent: x"},
		{`curl -H $"X-A: b" h`, "GET / h X-A: b"},
		{`curl --proxy-key-type PEM --krb x -Q y h`, "GET / h"},
	} {
		c, err := Parse(tt.line)
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		r, err := c.HTTP(t.Context(), "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		got := r.Method + " " + r.RequestURI + " " + r.Host
		r.Header.Del("Accept")
		r.Header.Del("Content-Type")
		if agent := r.Header["User-Agent"]; len(agent) == 0 {
			r.Header.Set("User-Agent", "none")
		} else if agent[0] == "curl" {
			r.Header.Del("User-Agent")
		}
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			got += " " + name + ": " + strings.Join(r.Header[name], "|")
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.line, got, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for line, want := range map[string]string{
		``:                             "must begin with curl",
		`fetch("https://example.com")`: "Copy as cURL (bash)",
		`Invoke-WebRequest -Uri "https://a.example"`:        "Copy as cURL (bash)",
		"curl ^\"https://example.com/^\" ^\n -H ^\"a: b^\"": "Copy as cURL (bash)",
		`curl`:                                  "no address",
		`curl 'https://example.com`:             "what begins at line 1, column 6 is not closed",
		`curl "https://example.com`:             "line 1, column 6 is not closed",
		`curl $'https://example.com`:            "line 1, column 6 is not closed",
		`curl example.com $(id`:                 "line 1, column 18 is not closed",
		`curl example.com -H`:                   "-H at line 1, column 18 needs a value",
		`curl example.com --request`:            "--request at line 1, column 18 needs a value",
		`curl example.com other.example`:        "2 addresses, the second one at line 1, column 18",
		`curl example.com --next other.example`: "--next at line 1, column 18: begins a second request",
		`curl ftp://example.com/`:               "http://",
		`curl mailto:x://`:                      "must be like",
		`curl 'http://example.com/%zz'`:         "must be like",
		`curl 'http://example.com/a b'`:         "%20",
		`curl example.com -H $'a: \x01'`:        "control character",
		`curl -X 'GET /' example.com`:           "-X at line 1, column 6: the method must be a word",
		`curl example.com -H 'a b: c'`:          "-H at line 1, column 18: the name of a header must be",
		`curl example.com -H nothing`:           "-H at line 1, column 18: a header must be like",
		`curl example.com -H $'a: b\r\nc: d'`:   "control character",
		`curl example.com -b $'a=b\nc'`:         "Cookie: the value of a header has a control character",
		"curl example.com\x00":                  "NUL",
		"curl " + strings.Repeat("a", MaxBytes): "at most 65536",
	} {
		if c, err := Parse(line); err == nil {
			t.Errorf("%.60q was taken: %+v", line, c)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", line, err, want)
		}
	}
}

func TestHTTP(t *testing.T) {
	c, err := Parse(`curl 'https://example.com/a%2Fb/{id}?x=1' -H 'Host: api.example' -H 'X-Forwarded-For: 192.0.2.1' -H 'X-Forwarded-For: 192.0.2.2'`)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.HTTP(t.Context(), "203.0.113.9")
	if err != nil {
		t.Fatal(err)
	}
	if r.Host != "api.example" || r.URL.Host != "" || r.URL.RawPath != "/a%2Fb/{id}" || r.URL.Path != "/a/b/{id}" || r.RequestURI != "/a%2Fb/{id}?x=1" ||
		r.RemoteAddr != "203.0.113.9:0" || r.Body != http.NoBody || !slices.Equal(r.Header["X-Forwarded-For"], []string{"192.0.2.1", "192.0.2.2"}) {
		t.Errorf("%+v", r)
	}
	if r, err := (&Request{URL: "http:///x"}).HTTP(t.Context(), "192.0.2.1"); err != nil || r.RequestURI != "/x" {
		t.Errorf("without a host: %+v, %v", r, err)
	}
	for peer, want := range map[string]string{
		"203.0.113.9:99": "203.0.113.9:99", "2001:db8::1": "[2001:db8::1]:0", "[2001:db8::1]": "[2001:db8::1]:0", "[2001:db8::1]:7": "[2001:db8::1]:7", "@": "@",
	} {
		if r, err := (&Request{URL: "/"}).HTTP(t.Context(), peer); err != nil || r.RemoteAddr != want || r.Method != "GET" {
			t.Errorf("%s: %+v, %v", peer, r, err)
		}
	}
	for _, peer := range []string{"", "example.com", "203.0.113.9:x", "300.0.0.1"} {
		if _, err := (&Request{URL: "/"}).HTTP(t.Context(), peer); err == nil || !strings.Contains(err.Error(), "the peer must be an IP address") {
			t.Errorf("%q: %v", peer, err)
		}
	}
}

func TestAddHeaders(t *testing.T) {
	var r Request
	if err := r.AddHeaders("A: b\r\n\r\n  \nHost: h\nA: c: d\n"); err != nil || r.Host != "h" || !slices.Equal(r.Header["A"], []string{"b", "c: d"}) {
		t.Errorf("%+v, %v", r, err)
	}
	if err := r.AddHeaders("A: b\nno"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}

// print writes a request as a browser does.
func print(r *Request) string {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	line := "curl " + quote(strings.NewReplacer("[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`).Replace(r.URL)) + " -X " + quote(r.Method)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, v := range r.Header[name] {
			if v == "" {
				line += " \\\n -H " + quote(name+";")
			} else {
				line += " \\\n -H " + quote(name+": "+v)
			}
		}
	}
	for _, name := range []string{"User-Agent", "Accept"} {
		if r.Header[name] == nil {
			line += " -H " + quote(name+":")
		}
	}
	if r.Host != "" {
		line += " -H " + quote("Host: "+r.Host)
	}
	return line
}

func FuzzParse(f *testing.F) {
	f.Add(`curl -sSLXDELETE -Ha:b "example.com/1" | jq`)
	f.Add(`curl $'a\x41\u00e9\101\'' -d @x --json '{}' -G -u a:b`)
	f.Add("curl 'https://example.com/' \\\r\n -H 'Accept: */*' -b 'a=b' --compressed")
	f.Add(`curl http://u:p@[::1]:8080/%2F?a#b -H 'Host: x' -H 'Accept:'`)
	f.Add("curl ^\"https://example.com/^\"")
	f.Fuzz(func(t *testing.T, line string) {
		c, err := Parse(line)
		if err != nil {
			return
		}
		r, err := c.HTTP(t.Context(), "192.0.2.1")
		if err != nil {
			t.Fatalf("%q gave %+v: %v", line, c, err)
		}
		if err := checkValue(fmt.Sprint(r.Header)); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(print(c))
		if err != nil && len(line) > MaxBytes/8 { // quotes make it longer
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", print(c), err)
		}
		again.Length, again.Ignored = c.Length, c.Ignored
		if !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v became %+v", c, again)
		}
	})
}

func TestALineForPowerShellIsNamed(t *testing.T) {
	for _, end := range []string{"\n", "\r\n"} {
		_, err := Parse("curl.exe -X POST `" + end + "  -H \"Accept: */*\" `" + end + "  http://example.com/")
		if err == nil || !strings.Contains(err.Error(), "PowerShell") {
			t.Errorf("%q: %v", end, err)
		}
	}
}

// Errors and lists quote no value of a line, which may be a credential: they go onto the page, and into logs.
func TestNoValueIsQuoted(t *testing.T) {
	for _, line := range []string{
		`curl --cookie=session=canary example.com`,
		`curl '--header=Authorization: Bearer canary' example.com`,
		`curl --user=alice:canary example.com`,
		`curl -b canary example.com`,
		`curl -!canary example.com`,
		`curl --Canary example.com`,
		`curl --canarycanarycanarycanarycanarycanarycanary example.com`,
		`curl -H 'Authorization: Bearer' canary example.com`,
		`curl -H Authorization: Bearer canary`,
		`curl -H Authorization: Bearer -canary example.com`,
		`curl -H Bearer canary example.com`,
		`curl -H 'Bearer canary' example.com`,
		`curl -H $'Authorization: canary\n' example.com`,
		`curl -b $'a=canary\n' example.com`,
		`curl -A $'canary\n' example.com`,
		`curl -u canary example.com`,
		`curl -X 'canary x' example.com`,
		`curl 'https://alice:canary x@example.com/'`,
		`curl https://alice:canary@example.com:port/`,
		`curl https://alice:canary%zz@example.com/`,
		`curl 'ftp://alice:canary@example.com/'`,
		`curl 'alice:canary'`,
		`curl https://a.example/ https://alice:canary@example.com/`,
		`curl --oauth2 canary example.com`,
		`curl --oauth2-bearer canary example.com`,
		`curl --proxy-user alice:canary --pass canary -U canary example.com`,
		`curl -d canary --data-raw canary -F canary -T canary -K canary example.com`,
		`curl -H @canary example.com`,
		`curl example.com -H Cookie:a=1; b=canary`,
		`curl example.com | curl -u alice:canary example.org`,
		`curl 'https://example.com/ canary`,
		`curl ${canary-`,
		`canary`,
	} {
		c, err := Parse(line)
		if err == nil && len(c.Ignored) == 0 {
			t.Errorf("%s: no error, and nothing is ignored", line)
		}
		text := fmt.Sprint(err)
		if err == nil {
			text = strings.Join(c.Ignored, "; ")
		}
		if strings.Contains(strings.ToLower(text), "canary") || strings.Contains(text, "alice") {
			t.Errorf("%s: %s", line, text)
		}
	}
	for _, r := range []*Request{{URL: "https://alice:canary@example.com:port/"}, {URL: "https://alice:canary x@example.com/"}, {URL: "/", Method: "canary x"}} {
		if _, err := r.HTTP(t.Context(), "192.0.2.1"); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := (&Request{}).AddHeaders("Accept: */*\nAuthorization Bearer canary"); err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}
