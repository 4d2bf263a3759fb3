// Package testbuild is for tests that run the go command.
package testbuild

import "runtime/debug"

// Flags returns the flags for go build and go vet with which they find the packages compiled that the test itself was
// built from. With others they would compile all of them again, and the standard library, too.
func Flags() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" {
			return []string{"-race"}
		}
	}
	return nil
}
