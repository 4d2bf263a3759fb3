// Package testsize sets the length of tests without a natural end, such as tests with random calls.
//
// A test takes its number of steps, seeds or episodes from [Of]. It uses the small number in "make test", and the
// large one in "make test-all", which builds with the tag long.
package testsize

// Of returns small, or large if the test was built with the tag long.
func Of(small, large int) int {
	if long {
		return large
	}
	return small
}
