package conformance

import (
	"os"
	"os/exec"
	"testing"
)

// needs returns the path of a program. Without it the test is skipped, except in CI: make needs-conformance installs it.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s: see make needs-conformance", err)
	default:
		t.Skipf("%s: see make needs-conformance", err)
	}
	return path
}
