//go:build !windows

package command

import "io"

// takesColours reports whether a terminal understands escape sequences.
func takesColours(_ io.Writer, term string) bool { return term != "" }
