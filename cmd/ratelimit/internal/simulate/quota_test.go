package simulate_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
)

// Four requests in the last minutes of an hour, and five in the next one.
func TestQuotaOfALog(t *testing.T) {
	const policies = "version: 1\npolicies:\n  - name: plan\n    key: remote_ip\n    limit: 2 per hour Europe/Berlin\n    max_wait: 1s\n"
	var log strings.Builder
	for _, second := range []int{3300, 3301, 3302, 3303, 3600, 3601, 3602, 3603, 3604} {
		log.WriteString(clf(second, "192.0.2.1", "GET /items", 200))
	}
	log.WriteString(clf(3605, "192.0.2.2", "GET /items", 200))
	r := simulated(t, simulate.Config{}, policies, log.String())
	p := find(t, r, "plan")
	if p.Requests != 10 || p.RequestsDenied != 5 || p.ClientsDenied != 1 || p.Limit != "2 per hour Europe/Berlin" || !p.Quota || p.Worst[0].Longest != (time.Hour-2*time.Second).Seconds() {
		t.Errorf("%+v", p)
	}
	if got, want := p.Spared(), "The smallest quota that spares 99.9 % of clients: 5 per hour Europe/Berlin. The policy has a quota of 2."; got != want {
		t.Errorf("advice %q", got)
	}
	if got, want := p.Advice(), "2 clients are too few to tell outliers. Use 5 per hour Europe/Berlin: it spares all 2 clients."; got != want {
		t.Errorf("advice %q", got)
	}
	for _, point := range p.Curve {
		if point.PerSecond != 0 || point.Limit == "4 per hour Europe/Berlin" && point.RequestsDenied != 1 || point.Own && point.RequestsDenied != 5 {
			t.Errorf("%+v", point)
		}
	}
	unknown := strings.Join(p.Unknown, "\n")
	for _, want := range []string{"although the hour had begun before the log", "Who waits for the next period asks again when it begins"} {
		if !strings.Contains(unknown, want) {
			t.Errorf("no %q in %s", want, unknown)
		}
	}
	for form, write := range map[string]func(*bytes.Buffer) error{
		"text": func(b *bytes.Buffer) error { return r.Text(b, false, 100) },
		"html": func(b *bytes.Buffer) error { return r.HTML(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if !strings.Contains(text, "instead of the quota of the policy") || strings.Contains(text, "urst") || strings.Contains(text, "Inf") || strings.Contains(text, "NaN") {
			t.Errorf("%s: %s", form, text)
		}
	}
	var waiting strings.Builder
	for _, second := range []int{3000, 3001, 3002, 3601} {
		waiting.WriteString(clf(second, "192.0.2.1", "GET /items", 200))
	}
	p = find(t, simulated(t, simulate.Config{}, strings.Replace(policies, "1s", "15m", 1), waiting.String()), "plan")
	if p.Requests != 4 || p.RequestsDenied != 0 || p.Waited != 1 || p.WaitLongest != 598 {
		t.Errorf("waiting for the next hour: %+v", p)
	}
	at := clf(0, "192.0.2.1", "GET /items", 200) // the hour begins with the log
	if unknown := find(t, simulated(t, simulate.Config{}, policies, at+at), "plan").Unknown; strings.Contains(strings.Join(unknown, "\n"), "had begun before") {
		t.Errorf("%q", unknown)
	}
}
