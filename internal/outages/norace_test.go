//go:build !race

package outages_test

const raceEnabled = false
