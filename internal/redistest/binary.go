package redistest

import (
	"os"
	"os/exec"
	"testing"
)

// binary returns the path of redis-server. Without one it skips the test, or
// fails it where a skip would hide that nothing was tested.
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	const missing = "no redis-server on PATH; install it with: apt-get install redis-server"
	if os.Getenv("RATELIMIT_REQUIRE_REDIS") != "" || os.Getenv("CI") == "true" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
	return ""
}
