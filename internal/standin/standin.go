// Package standin is where package store finds a memory store to stand in for another. It cannot import
// package memstore, which imports it.
package standin

// New makes a memstore.Store with its default Config. Package memstore sets it; where nothing imports that,
// it is nil.
var New func() any
