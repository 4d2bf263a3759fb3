// Package testbuild returns the build flags of the running test, for tests that run the go command.
package testbuild

import "runtime/debug"

// Flags returns the flags of the build of this test, for go build and go vet. With other flags they would compile all
// packages again, with the standard library.
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
