package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

const (
	adminVariable  = "RATELIMIT_ADMIN"
	headerVariable = "RATELIMIT_ADMIN_HEADER"

	maxTop = 8 << 20 // bytes of an answer
)

// watchEvery is how often top -watch looks.
var watchEvery = 2 * time.Second

var topCommand = &command{
	name:  "top",
	short: "Shows the keys with the most requests and denials.",
	long: `It reads top.json of the admin page, which has the keys of all replicas. If the page needs a login, set
` + headerVariable + ` to a header that has it, such as "Authorization: Bearer TOKEN". Several headers are
separated by line breaks.`,
	examples: []string{"ratelimit top -admin https://ops.example.com/admin/ -policy login -watch"},
	prepare: func(f *flags) func(context.Context, *env) error {
		admin := f.text("admin", "`URL` of the admin page. Default: "+adminVariable+" of the environment")
		policy := f.text("policy", "`NAME` of the only policy to show")
		watch := f.is("watch", "look again every 2 seconds, until it is interrupted")
		asJSON := f.is("json", "write top.json of the page, one after the other with -watch")
		timeout := f.duration("timeout", 5*time.Second, "`TIME` to wait for an answer")
		return func(ctx context.Context, e *env) error {
			if err := e.none(); err != nil {
				return err
			}
			page, err := adminPage(*admin, *policy, *timeout, e)
			if err != nil {
				return err
			}
			return page.show(ctx, *watch, *asJSON, e)
		}
	},
}

// A page is the top.json of an admin page.
type page struct {
	address *url.URL
	header  http.Header
	client  *http.Client
}

// adminPage returns the page at address, or of the environment.
func adminPage(address, policy string, timeout time.Duration, e *env) (*page, error) {
	from := "-admin"
	if address == "" {
		address, from = e.getenv(adminVariable), adminVariable
	}
	if address == "" {
		return nil, wrongUsage("-admin: must be the URL of the admin page, such as http://localhost:8080/admin/; or set %s", adminVariable)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, wrongUsage("%s: must be a URL, such as http://localhost:8080/admin/; special characters of a password must be escaped, such as @ as %%40", from)
	}
	u.RawQuery, u.Fragment = "", ""
	if u.Path == "" {
		u.Path = "/"
	}
	if !strings.HasSuffix(u.Path, "/top.json") {
		u = u.JoinPath("top.json")
	}
	if policy != "" {
		u.RawQuery = url.Values{"policy": {policy}}.Encode()
	}
	p := &page{address: u, header: http.Header{"Accept": {"application/json"}}, client: &http.Client{
		Timeout: timeout,
		// A header with a login is for this address alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	lines := textproto.NewReader(bufio.NewReader(strings.NewReader(strings.TrimSpace(e.getenv(headerVariable)) + "\n\n")))
	header, err := lines.ReadMIMEHeader()
	if err != nil {
		return nil, wrongUsage("%s: must be a header, such as \"Authorization: Bearer TOKEN\"", headerVariable)
	}
	maps.Copy(p.header, header)
	return p, nil
}

// show writes the keys once, or again and again until ctx ends.
func (p *page) show(ctx context.Context, watch, asJSON bool, e *env) error {
	before, after := "", ""
	switch {
	case asJSON:
	case watch && e.terminal:
		before = "\x1b[H\x1b[2J"
	case watch:
		after = "\n"
	}
	for first := true; ; first = false {
		t, err := p.read(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && first:
			return err
		case err != nil:
			fmt.Fprintf(e.err, "ratelimit top: %s\n", plain(err))
		default:
			fmt.Fprint(e.out, before)
			if asJSON {
				err = writeJSON(e.out, t.text)
			} else {
				t.write(e)
				_, err = fmt.Fprint(e.out, after)
			}
			if err != nil { // nobody reads
				return err
			}
		}
		if !watch {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchEvery):
		}
	}
}

// read gets the keys.
func (p *page) read(ctx context.Context) (*topKeys, error) {
	r := (&http.Request{Method: "GET", URL: p.address, Host: p.address.Host, Header: p.header.Clone()}).WithContext(ctx)
	answer, err := p.client.Do(r)
	var text []byte
	if err == nil {
		defer answer.Body.Close()
		text, err = io.ReadAll(io.LimitReader(answer.Body, maxTop))
	}
	if of := new(url.Error); errors.As(err, &of) { // it has the address, with a user
		err = of.Err
	}
	if err != nil {
		return nil, fmt.Errorf("the admin page at %s: %w", show(p.address.Host), err)
	}
	return readTop(p, answer.StatusCode, text)
}

func readTop(p *page, status int, text []byte) (*topKeys, error) {
	host := show(p.address.Host)
	var t topKeys
	var problem struct {
		Error string `json:"error"`
	}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil, fmt.Errorf("the admin page at %s refuses (%d): set %s to a header that it accepts, such as \"Authorization: Bearer TOKEN\"", host, status, headerVariable)
	case status >= 300 && status < 400:
		return nil, fmt.Errorf("the admin page at %s redirects (%d), perhaps to a login: set %s to a header that it accepts", host, status, headerVariable)
	case status != http.StatusOK && json.Unmarshal(text, &problem) == nil && problem.Error != "":
		return nil, fmt.Errorf("the admin page at %s: %s", host, showLong(problem.Error))
	case status != http.StatusOK || json.Unmarshal(text, &t) != nil || t.Version == 0:
		return nil, fmt.Errorf("%s answers with %d, and not as the admin page does: the URL must be that under which the program mounts admin.Handler, such as http://localhost:8080/admin/", host, status)
	case t.Version != topVersion:
		return nil, fmt.Errorf("the admin page at %s has version %d of top.json, and this command knows %d: use the command of the program's version", host, t.Version, topVersion)
	}
	t.text = text
	return &t, nil
}

// topKeys are top.json.
type topKeys struct {
	text json.RawMessage

	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Policy  string    `json:"policy"`
	Keys    []topKey  `json:"keys"`
	LeftOut int       `json:"keys_left_out"`
}

const topVersion = 2

type topKey struct {
	Policy   string    `json:"policy"`
	Key      string    `json:"key"`
	Requests int64     `json:"requests"`
	Denied   int64     `json:"denied"`
	Error    int64     `json:"error"`
	Share    float64   `json:"share"`
	State    string    `json:"state"`
	Until    time.Time `json:"until"`
}

func (t *topKeys) write(e *env) {
	of := "all policies"
	if t.Policy != "" {
		of = "policy " + show(t.Policy)
	}
	fmt.Fprintf(e.out, "%s, %s\n\n", t.At.UTC().Format(time.RFC3339), of)
	if len(t.Keys) == 0 {
		fmt.Fprint(e.out, "no keys lately\n")
		return
	}
	rows := [][]string{{"requests", "denied", "share", "state", "policy"}}
	widths := make([]int, len(rows[0]))
	for _, k := range t.Keys {
		rows = append(rows, []string{between(k.Requests, k.Error), numbers.Count(k.Denied), fmt.Sprintf("%.1f%%", 100*k.Share), k.state(), e.fit(k.Policy, 2*e.columns/3)})
	}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, row := range rows {
		begin := fmt.Sprintf("%*s  %*s  %*s  %-*s  %-*s  ", widths[0], row[0], widths[1], row[1], widths[2], row[2], widths[3], row[3], widths[4], row[4])
		key, color := "key", report.Bold
		if i > 0 {
			k := t.Keys[i-1]
			key, color = e.fit(k.Key, utf8.RuneCountInString(begin)), ""
			if k.State != "ok" {
				color = report.Red
			}
		}
		fmt.Fprintf(e.out, "%s\n", e.paint.In(color, begin+key))
	}
	if t.LeftOut > 0 {
		fmt.Fprintf(e.out, "\nAnd %s more: replicas publish only their first keys.\n", numbers.Of(int64(t.LeftOut), "key"))
	}
}

// state says whether requests of the key are allowed now.
func (k *topKey) state() string {
	if !k.Until.IsZero() {
		return show(k.State) + " until " + k.Until.UTC().Format("15:04:05")
	}
	return show(k.State)
}

// between writes a count that is at most so much too high.
func between(n, excess int64) string {
	if excess > 0 {
		return numbers.Count(max(0, n-excess)) + "-" + numbers.Count(n)
	}
	return numbers.Count(n)
}
