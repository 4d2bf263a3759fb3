package simulate

import (
	"strings"
	"unsafe"
)

// maxClients bounds Config.Clients.
const maxClients = 1 << 28

// clients are the keys of a policy, up to a number, in the order of their first requests.
type clients struct {
	max   int
	byKey map[string]*cell
	all   []*cell
}

// A cell is what is known about a key.
type cell struct {
	key     string // a short one
	touched uint16 // the rows of the curve that denied it something

	requests, denied int64 // decided about
	alone            int64 // decided about if the policy were alone
	first, last      int64 // denial
	longest, total   int64 // wait
	until            int64 // the end of the last wait

	rows   [maxRows]rowState
	levels [maxRates]levelState
	at     int64 // of levels: the time of the last charge
}

// cellSize is what a client takes here, in bytes: with a key of the greatest length, and its part of the map and of the
// list, which may be half empty.
const cellSize = int64(unsafe.Sizeof(cell{})) + maxKey + 2*(24+1) + 2*8

// cell returns the cell of key, nil if there is none and no room for it.
func (c *clients) cell(key string) *cell {
	key = short(key)
	of := c.byKey[key]
	if of == nil && len(c.all) < c.max {
		of = &cell{key: strings.Clone(key)} // the key may be a part of a long line
		c.byKey[of.key] = of
		c.all = append(c.all, of)
	}
	return of
}
