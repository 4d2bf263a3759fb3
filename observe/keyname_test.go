package observe_test

import (
	"fmt"

	"github.com/go-tokenbucket/ratelimit/observe"
)

// Find the lines of an address in a log with a KeySecret.
func ExampleKeyName() {
	fmt.Println(observe.KeyName([]byte("a secret of 16 bytes or more"), "ip:192.0.2.1"))
	// Output:
	// hmac:66ffd7661dac2dd9
}
