//go:build race

package outages_test

const raceEnabled = true
