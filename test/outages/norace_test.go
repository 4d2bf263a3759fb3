//go:build long && !race

package outages_test

const raceEnabled = false
