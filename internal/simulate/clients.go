package simulate

import (
	"hash/maphash"
	"unsafe"
)

// maxClients bounds Config.Clients.
const maxClients = 1 << 28

const (
	cellsPerSlab = 1024
	firstBlock   = 1 << 10
	arenaBlock   = 1 << 20
)

// clients are the keys of a policy, up to a number. They are no Go map, because a million keys would take more memory,
// and because cells and keys without pointers cost the collector nothing.
type clients struct {
	max   int
	count int
	seed  maphash.Seed
	index []uint32 // open addressing: the number of a cell plus one
	slabs [][]cell // of cellsPerSlab, of which the first one grows
	arena [][]byte // blocks of keys
}

// A cell is what is known about a key.
type cell struct {
	block, from uint32 // of its key in the arena
	length      uint8
	touched     uint16 // the rows of the curve that denied it something
	hash        uint32

	requests, denied int64 // decided about
	alone            int64 // decided about if the policy were alone
	first, last      int64 // denial
	longest, total   int64 // wait
	until            int64 // the end of the last wait

	rows   [maxRows]rowState
	levels [maxRates]levelState
	at     int64 // of levels: the time of the last charge
}

// cellSize is what a client takes here, in bytes, with a key of the greatest length and its part of the index.
const cellSize = int64(unsafe.Sizeof(cell{})) + maxKey + 4*4

// cell returns the cell of key, nil if there is none and no room for it. It is valid until the next call, which may move it.
func (c *clients) cell(key string) *cell {
	key = short(key)
	hash := maphash.String(c.seed, key)
	if len(c.index) > 0 {
		mask := uint64(len(c.index) - 1)
		for slot := hash & mask; c.index[slot] != 0; slot = (slot + 1) & mask {
			if found := c.at(int(c.index[slot] - 1)); found.hash == uint32(hash>>32) && string(c.key(found)) == key {
				return found
			}
		}
	}
	if c.count >= c.max {
		return nil
	}
	return c.add(key, hash)
}

func (c *clients) add(key string, hash uint64) *cell {
	if 4*(c.count+1) > 3*len(c.index) {
		c.grow()
	}
	n := c.count
	if n/cellsPerSlab == len(c.slabs) {
		size := cellsPerSlab
		if n == 0 {
			size = 8
		}
		c.slabs = append(c.slabs, make([]cell, 0, size))
	}
	slab := &c.slabs[n/cellsPerSlab]
	*slab = append(*slab, cell{})
	c.count++
	if last := len(c.arena) - 1; last < 0 || cap(c.arena[last])-len(c.arena[last]) < len(key) {
		c.arena = append(c.arena, make([]byte, 0, min(arenaBlock, firstBlock<<min(last+1, 20))))
	}
	block := &c.arena[len(c.arena)-1]
	added := c.at(n)
	*added = cell{block: uint32(len(c.arena) - 1), from: uint32(len(*block)), length: uint8(len(key)), hash: uint32(hash >> 32)}
	*block = append(*block, key...)
	c.put(n, hash)
	return added
}

func (c *clients) grow() {
	c.index = make([]uint32, max(64, 2*len(c.index)))
	for n := range c.count {
		c.put(n, maphash.String(c.seed, string(c.key(c.at(n)))))
	}
}

func (c *clients) put(n int, hash uint64) {
	mask := uint64(len(c.index) - 1)
	slot := hash & mask
	for c.index[slot] != 0 {
		slot = (slot + 1) & mask
	}
	c.index[slot] = uint32(n + 1)
}

func (c *clients) at(n int) *cell { return &c.slabs[n/cellsPerSlab][n%cellsPerSlab] }

// key returns the short key of a cell.
func (c *clients) key(of *cell) []byte {
	return c.arena[of.block][of.from : of.from+uint32(of.length)]
}

func (c *clients) all(yield func(*cell) bool) {
	for n := range c.count {
		if !yield(c.at(n)) {
			return
		}
	}
}
