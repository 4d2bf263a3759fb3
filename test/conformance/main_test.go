package conformance

import (
	"flag"
	"log"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// Most of the tests wait for Retry-After, and need no processor for that.
	if err := flag.Set("test.parallel", "64"); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}
