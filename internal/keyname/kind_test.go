package keyname_test

import (
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

func TestKindsOfPrograms(t *testing.T) {
	for kind, valid := range map[string]bool{
		"member": true, "API_key-2": true, strings.Repeat("k", 63): true,
		"": false, "ip": false, "join": false, "static": false, "header": false, "route": false,
		"a:b": false, "a|b": false, "a b": false, "é": false, strings.Repeat("k", 64): false,
	} {
		if err := keyname.CheckKind(kind); (err == nil) != valid {
			t.Errorf("%q: error %v", kind, err)
		}
	}
}
