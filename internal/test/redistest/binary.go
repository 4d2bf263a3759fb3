package redistest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"
)

// programVariable names the environment variable that says which server to run.
const programVariable = "RATELIMIT_REDIS_SERVER"

// binary returns the path of the server program. Without the program, it skips the test, or fails it as described at
// Missing.
func binary(tb testing.TB) string {
	tb.Helper()
	program := cmp.Or(os.Getenv(programVariable), "redis-server")
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	Missing(tb, program, "redis-server")
	return ""
}

// Missing skips a test because a program is not installed. It fails the test instead if the environment variable
// RATELIMIT_REQUIRE_REDIS is not empty or CI is "true". The message says to install the Debian package.
func Missing(tb testing.TB, program, debian string) {
	tb.Helper()
	missing := "no " + program + "; install it with: apt-get install " + debian
	if os.Getenv("RATELIMIT_REQUIRE_REDIS") != "" || os.Getenv("CI") == "true" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
}
