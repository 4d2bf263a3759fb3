package command_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// canary is a password. No output may have it.
const canary = "c4naryPassw0rd"

func redisClient(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redisstore.Options(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNoOutputHasAPassword(t *testing.T) {
	urls := []string{
		"redis://user:" + canary + "@127.0.0.1:1",
		"redis://:" + canary + "@127.0.0.1:1/x",
		"redis://:" + canary + "@127.0.0.1:port",
		"redis://:" + canary + "#x@127.0.0.1:1",
		"redis://:x/" + canary + "@127.0.0.1:1",
		"redis://:%" + canary + "@127.0.0.1:1",
		"redis://:" + canary + "@127.0.0.1:1?what=" + canary,
		"http://user:" + canary + "@127.0.0.1:1",
		canary + "@127.0.0.1:1",
		":" + canary + "@127.0.0.1:1",
		"user:" + canary + "@127.0.0.1:1",
	}
	limits := file(t, "limits.yaml", limitsFile+"  - name: token\n    key: {header: Authorization}\n    limit: 1/1h\n    optional: true\n")
	log := file(t, "access.log", logLine)
	commands := [][]string{
		{"diagnose"},
		{"peek", "-policy", "api", "ip:192.0.2.1"},
		{"reset", "-policy", "api", "ip:192.0.2.1"},
		{"block", "-policy", "api", "ip:192.0.2.1"},
		{"unblock", "-policy", "api", "ip:192.0.2.1"},
		{"limits", "get"},
		{"limits", "set", "api", "60/1m", "-was", "60/1m"},
		{"limits", "end", "api"},
		{"explain", "-policies", limits, "/"},
	}
	var lines [][]string
	for i, url := range urls {
		looksLikeRedis := strings.Contains(url, "redis://")
		for j, c := range commands {
			for k, at := range [][]string{{"-redis", url}, {"-redis=" + url}, {"-redis", url, "-cluster"}, {"-redis" + url}, {"-" + url}, {"-=" + url}, {"-timeout", url}, {"-cluster=" + url}} {
				if testsize.Of((i+j+k)%4, 0) == 0 { // all pairs of two of the three
					lines = append(lines, append(at, c...), append(slices.Clone(c), at...))
				}
			}
			if looksLikeRedis {
				lines = append(lines, append([]string{c[0], url}, c[1:]...), append(slices.Clone(c), url), append(slices.Clone(c), "-prefix", url), append(slices.Clone(c), "-secret-file", url))
			}
		}
		lines = append(lines,
			[]string{url}, []string{"help", url}, []string{"limits", url},
			[]string{"top", "-admin", url}, []string{"top", url}, []string{"top", "-watch=" + url, "-admin", url},
			[]string{"explain", "-policies", limits, "-curl", "curl -u user:" + canary + " " + url + " " + url},
			[]string{"explain", "-policies", limits, url + "/%zz"},
			[]string{"explain", "-policies", limits, "-peer", url, "/"},
			[]string{"simulate", "-policies", limits, log, "-spare", url},
			[]string{"simulate", "-policies", limits, log, "-clients", url},
			[]string{"simulate", "-policies", limits, log, "-json=" + url},
		)
		if looksLikeRedis {
			lines = append(lines, []string{"simulate", "-policies", limits, url}, []string{"simulate", "-policies", url, log}, []string{"policies", url},
				[]string{"simulate", "-policies", limits, log, "-map", url}, []string{"simulate", "-policies", limits, log, "-html", url})
		}
	}
	const wanted = "URL: is a line of curl: give it with -curl"
	curl := []string{"explain", "-policies", limits, "curl https://example.com/ -H 'Authorization: Bearer " + canary + "'"}
	if r := run(t, curl...); !strings.Contains(r.err, wanted) {
		t.Errorf("%q: %s", curl, r.err)
	}
	lines = append(lines, curl)
	for _, line := range lines {
		r := run(t, line...)
		if r.status == 0 {
			t.Errorf("%q: status 0", line)
		}
		if strings.Contains(r.out+r.err, canary) {
			t.Errorf("%q:\n%s%s", line, r.out, r.err)
		}
	}
	for _, url := range urls {
		for _, c := range append(commands, []string{"top"}) {
			r := setup{env: map[string]string{"RATELIMIT_REDIS": url, "RATELIMIT_ADMIN": url}}.run(t, c...)
			if r.status == 0 || strings.Contains(r.out+r.err, canary) {
				t.Errorf("%q of %q: status %d\n%s%s", c, url, r.status, r.out, r.err)
			}
		}
	}

	// What is explained has credentials, too.
	for _, args := range [][]string{
		{"https://user:" + canary + "@example.com/"},
		{"-H", "Authorization: Bearer " + canary, "-H", "Cookie: session=" + canary, "-H", "Proxy-Authorization: " + canary, "/"},
		{"-curl", "curl -u user:" + canary + " -b session=" + canary + " --proxy-user x:" + canary + " https://example.com/"},
	} {
		for _, as := range []string{"-json=true", "-json=false"} {
			r := run(t, append([]string{"explain", as, "-policies", limits}, args...)...)
			if r.status != 0 || strings.Contains(r.out+r.err, canary) {
				t.Errorf("%q: status %d\n%s%s", args, r.status, r.out, r.err)
			}
		}
	}
}
