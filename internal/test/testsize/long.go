//go:build long

package testsize

const long = true
