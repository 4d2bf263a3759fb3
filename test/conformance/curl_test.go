package conformance

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// runCurl runs curl and returns what it says of each of its transfers in the end.
func runCurl(t *testing.T, args ...string) string {
	t.Helper()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl on PATH")
	}
	// A file, because before it retries curl truncates what it wrote, which fails on /dev/null.
	body := filepath.Join(t.TempDir(), "body#1")
	args = append([]string{"--disable", "--silent", "--noproxy", "*", "--max-time", "60", "--retry-all-errors", "--output", body, "--write-out", "%{http_code} "}, args...)
	out, err := exec.CommandContext(t.Context(), curl, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// By itself curl would come back after a second, after two more and after four more, and give up.
func TestCurlObeysRetryAfter(t *testing.T) {
	t.Parallel()
	url, requests := counted(t, everybody(ratelimit.Every(8*time.Second)))
	if got := runCurl(t, "--retry", "3", url+"/[1-2]"); got != "200 200 " {
		t.Errorf("curl says %q", got)
	}
	if got := requests.Load(); got != 3 {
		t.Errorf("%d requests, want 3: two, and one refusal", got)
	}
}

func TestCurlEndsWhereThereIsNoRetryAfter(t *testing.T) {
	t.Parallel()
	url, requests := counted(t, never())
	if got := runCurl(t, "--retry", "1", url+"/[1-1]"); got != "429 " {
		t.Errorf("curl says %q", got)
	}
	if got := requests.Load(); got != 2 {
		t.Errorf("%d requests, want 2", got)
	}
}
