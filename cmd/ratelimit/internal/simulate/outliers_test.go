package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// A crowd is so many clients, each of which sends so many requests in one second.
type crowd struct{ clients, requests int }

// made writes a log of crowds. Each client has an address below that of its crowd, and a minute of its own.
func (c crowd) write(log *strings.Builder, number int) {
	for i := range c.clients {
		line := clf(60*i, fmt.Sprintf("10.%d.%d.%d", number, i/250, i%250), "GET /items", 200)
		log.WriteString(strings.Repeat(line, c.requests))
	}
}

func logOf(crowds []crowd) string {
	var log strings.Builder
	for i, c := range crowds {
		c.write(&log, i)
	}
	return log.String()
}

func apiWith(limit string) string {
	return "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: " + limit + "\n"
}

// The advice is for the honest clients, and what it says is what its limit does.
func TestAdvice(t *testing.T) {
	people := []crowd{{1000, 1}, {700, 4}, {250, 8}, {32, 38}} // 1,982 clients, of which 95 % need 8 at most
	for _, tt := range []struct {
		name    string
		crowds  []crowd
		limit   string
		exclude []string
		want    string
	}{
		{"no abuser", people, "60/1m burst 10", nil, "No client is an outlier. Use 60/1m burst 40: it spares all 1,982 clients."},
		{"the limit is right", people, "60/1m burst 40", nil, "No client is an outlier. Keep 60/1m burst 40: it spares all 1,982 clients."},
		{"the limit is large", people, "60/1m burst 600", nil, "No client is an outlier. Keep 60/1m burst 600: it spares all 1,982 clients. 60/1m burst 40 would, too."},
		{"one abuser", append(slices.Clone(people), crowd{1, 1408}), "60/1m burst 10", nil, "Deny this client: ip:10.4.0.0, with 17 % of the requests. Use 60/1m burst 40: it spares all 1,982 others."},
		{"two abusers", append(slices.Clone(people), crowd{1, 1408}, crowd{1, 900}), "60/1m burst 10", nil, "Deny these 2: ip:10.4.0.0, ip:10.5.0.0, with 25 % of the requests. Use 60/1m burst 40: it spares all 1,982 others."},
		{"two abusers, and a limit that does it", append(slices.Clone(people), crowd{1, 1408}, crowd{1, 900}), "60/1m burst 60", nil, "Deny these 2: ip:10.4.0.0, ip:10.5.0.0, with 25 % of the requests. Keep 60/1m burst 60: it spares all 1,982 others."},
		{"one per cent of abusers", append(slices.Clone(people), crowd{20, 500}), "60/1m burst 10", nil, "Deny these 20: ip:10.4.0.0, ip:10.4.0.1, ip:10.4.0.2, ip:10.4.0.3, ip:10.4.0.4 and 15 more (-json has all), with 59 % of the requests. Use 60/1m burst 40: it spares all 1,982 others."},
		{"abusers on a ladder set no more than ten times what others need", append(slices.Clone(people), crowd{1, 79}, crowd{1, 160}, crowd{1, 320}, crowd{1, 640}), "60/1m burst 10", nil, "Deny these 3: ip:10.7.0.0, ip:10.6.0.0, ip:10.5.0.0, with 14 % of the requests. Use 60/1m burst 80: it spares all 1,983 others."},
		{"two kinds of honest clients", []crowd{{900, 2}, {100, 60}}, "60/1m burst 10", nil, "No client is an outlier. Use 60/1m: it spares all 1,000 clients."},
		{"few clients", []crowd{{4, 5}, {1, 300}}, "60/1m burst 10", nil, "5 clients are too few to tell outliers. Use 60/1m burst 300: it spares all 5 clients."},
		{"few clients, and one to be left out", []crowd{{4, 5}, {1, 300}}, "60/1m burst 10", []string{"ip:10.1.0.0"}, "4 clients are too few to tell outliers. Keep 60/1m burst 10: it spares all 4 others. 60/1m burst 5 would, too. Left out by -exclude: ip:10.1.0.0, with 94 % of the requests."},
		{"all are equal", []crowd{{100, 25}}, "60/1m burst 10", nil, "No client is an outlier. Use 60/1m burst 25: it spares all 100 clients."},
		{"one client", []crowd{{1, 25}}, "60/1m burst 10", nil, "1 client is too few to tell outliers. Use 60/1m burst 25: it spares its only client."},
		{"one client that is left out", []crowd{{1, 25}}, "60/1m burst 10", []string{"ip:10.0.0.0"}, "No other client is left to choose a limit for. Left out by -exclude: ip:10.0.0.0, with 100 % of the requests."},
		{"a quota", append(slices.Clone(people), crowd{1, 1408}), "10 per day", nil, "Deny this client: ip:10.4.0.0, with 17 % of the requests. Use 40 per day: it spares all 1,982 others."},
		{"no round limit denies it", []crowd{{95, 7}, {4, 61}, {1, 71}}, "60/1m burst 10", nil, "Look at 1 outlier first, because others need nearly as much: ip:10.2.0.0, with 7.2 % of the requests. Use 60/1m burst 61: it spares all 99 others."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := logOf(tt.crowds)
			p := find(t, simulated(t, simulate.Config{Exclude: tt.exclude}, apiWith(tt.limit), log), "api")
			if got := p.Advice(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			v := p.Verdict
			if v.Limit == "" {
				return
			}
			then := find(t, simulated(t, simulate.Config{}, apiWith(v.Limit), log), "api")
			denied := make(map[string]bool)
			for _, c := range then.Worst {
				denied[c.Key] = true
			}
			for _, o := range append(slices.Clone(v.Outliers), v.Excluded...) {
				if !denied[o.Key] && len(v.Outliers) <= len(then.Worst) {
					t.Errorf("%s spares %s", v.Limit, o.Key)
				}
			}
			if n := len(v.Outliers) + len(v.Excluded); then.ClientsDenied != int64(n) {
				t.Errorf("%s denies %d clients, want %d", v.Limit, then.ClientsDenied, n)
			}
		})
	}
}

// Clients that are a little above the rate all the time need a higher rate, not a burst of a day.
func TestAdviceDoublesTheRate(t *testing.T) {
	var log strings.Builder
	for second := range 600 {
		for i := range 100 {
			if i < 10 || second%60 == 0 {
				log.WriteString(clf(second, fmt.Sprintf("10.0.0.%d", i), "GET /items", 200))
			}
		}
	}
	p := find(t, simulated(t, simulate.Config{}, apiWith("40/1m burst 10"), log.String()), "api")
	if got, want := p.Advice(), "No client is an outlier. Use 80/1m burst 1: it spares all 100 clients."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Keys are excluded from all policies that have them, as the report shows them: escaped and shortened ones, too.
func TestExclude(t *testing.T) {
	parts := strings.Repeat(", {header: User-Agent}", 8)
	policies := apiWith("1/1m") + "  - name: odd\n    key: {join: [{static: 'a\\b'}, remote_ip]}\n    limit: 1/1m\n  - name: long\n    key: {join: [remote_ip" + parts + "]}\n    limit: 1/1m\n"
	log := strings.Repeat(clf(0, "192.0.2.1", "GET /items", 200), 3) + clf(0, "192.0.2.2", "GET /items", 200)
	shown := simulated(t, simulate.Config{}, policies, log)
	for i, p := range shown.Policies {
		key := logtext.Show(p.Worst[0].Key, 1000)
		for j, q := range simulated(t, simulate.Config{Exclude: []string{key}, HideKeys: true}, policies, log).Policies {
			v := q.Verdict
			if i == j && (len(v.Excluded) != 1 || v.Excluded[0].Requests != 3 || v.Others != 1 || !strings.HasPrefix(v.Excluded[0].Key, "hmac:")) || i != j && len(v.Excluded) != 0 {
				t.Errorf("-exclude %s of %s: %s has %+v", key, p.Name, q.Name, v)
			}
		}
	}
	cfg := simulate.Config{Exclude: []string{"ip:192.0.2.1", "192.0.2.2"}, Policies: file(t, policies), Logs: []simulate.Log{{Reader: strings.NewReader(log)}}}
	if r, err := simulate.Run(context.Background(), cfg); !errors.Is(err, simulate.ErrExclude) || !strings.Contains(fmt.Sprint(err), "192.0.2.2: no client has this key") || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}
