package adaptertest

import "testing"

// The middleware compared with itself: the difference is the noise of the measurement.
func BenchmarkServeMux(b *testing.B) { Cost(b, serveMuxOf) }
