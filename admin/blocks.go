package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
)

// maxBlockLooks bounds the buckets that are read for the reason of a block, maxBlockRows the blocks that are listed, and
// blockRowsFirst those on the first page.
const (
	maxBlockLooks  = 20
	maxBlockRows   = 200
	blockRowsFirst = 8
)

// blockFacts are a block or lock that a replica has met.
type blockFacts struct {
	Policy string `json:"policy"`
	keyFacts
	Until  time.Time `json:"until"`
	Locked bool      `json:"locked"`           // by LockFor
	Reason string    `json:"reason,omitempty"` // who has blocked it, and why
	Looked bool      `json:"looked"`           // Locked and Reason are known

	long bool // no replica has kept the key
}

// addBlocks lists the blocks in force, those that end last first. A block is left out if its bucket is read
// and is not blocked.
func (f *facts) addBlocks(ctx context.Context, h *handler) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	f.Blocks = []blockFacts{} // [] rather than null in JSON
	all := slices.DeleteFunc(slices.Clone(f.Snapshot.Blocks), func(b fleet.Block) bool { return b.Name == "" || !b.Until.After(f.At) })
	slices.SortStableFunc(all, func(a, b fleet.Block) int { return b.Until.Compare(a.Until) })
	f.LeftOut.Blocks += max(0, len(all)-maxBlockRows)
	all = all[:min(maxBlockRows, len(all))]
	rows, ended := make([]blockFacts, len(all)), make([]bool, len(all))
	var wg sync.WaitGroup
	places := make(chan struct{}, maxLooks)
	for i, b := range all {
		rows[i] = h.blockFacts(b)
		if i >= maxBlockLooks || rows[i].long {
			continue
		}
		wg.Go(func() {
			places <- struct{}{}
			ended[i] = rows[i].look(ctx, h, string(b.Name))
			<-places
		})
	}
	wg.Wait()
	f.Snapshot.Blocks = nil
	for i, b := range all {
		if !ended[i] {
			f.Snapshot.Blocks, f.Blocks = append(f.Snapshot.Blocks, b), append(f.Blocks, rows[i])
		}
	}
}

func (h *handler) blockFacts(b fleet.Block) blockFacts {
	shown := string(b.Name)
	return blockFacts{Policy: b.Policy, keyFacts: h.namedTop(b.Policy, shown), Until: b.Until.UTC(), long: isNameOfLongKey(shown)}
}

// look reads the reason of the block. It reports whether the key is not blocked any more.
func (b *blockFacts) look(ctx context.Context, h *handler, key string) (ended bool) {
	if key = h.whole(b.Policy, key); isNameOfKey(key) {
		return false
	}
	bucket := h.look(ctx, ratelimit.Policy{Name: b.Policy}, key)
	switch {
	case bucket.Error != "" || bucket.Degraded:
		return false
	case !bucket.Blocked:
		return true
	}
	b.Looked, b.Locked, b.Reason = true, bucket.Locked, bucket.Reason
	return false
}

// Link is the address of the key's page, "" if it has none.
func (b blockFacts) Link() string {
	if b.long {
		return ""
	}
	return "key?" + b.address(b.Policy)
}

// Why is the user and the reason of the block, or that it is a lock.
func (b blockFacts) Why() string {
	switch {
	case b.Locked:
		return "locked by a request"
	case !b.Looked:
		return "see the page of the key"
	}
	return cmp.Or(b.Reason, "not known")
}

// A blockTable is blocks for a table.
type blockTable struct {
	Blocks []blockFacts
	More   int
	All    string // the address of all of them
	May    bool
	Root   string
}

// BlockTable has the blocks of the first page.
func (p *page) BlockTable() blockTable {
	t := p.blockTable(p.Data.(*facts).Blocks, blockRowsFirst)
	t.All = p.Root + "blocks"
	return t
}

func (p *page) blockTable(blocks []blockFacts, most int) blockTable {
	n := min(most, len(blocks))
	return blockTable{blocks[:n], len(blocks) - n, "", p.May, p.Root}
}

// blocksView is the page of all blocks, and blocks.json.
type blocksView struct {
	Version int          `json:"version"`
	At      time.Time    `json:"at"`
	Blocks  []blockFacts `json:"blocks"`
	LeftOut int          `json:"blocks_left_out"` // of what replicas publish
}

func (h *handler) blocksView(c *call) *blocksView {
	f := h.facts(c.r.Context())
	return &blocksView{version, f.At, f.Blocks, f.LeftOut.Blocks}
}

// AllBlocks has the blocks of their page.
func (p *page) AllBlocks() blockTable {
	return p.blockTable(p.Data.(*blocksView).Blocks, maxBlockRows)
}

func (h *handler) blocksPage(c *call) error {
	return h.render(c, http.StatusOK, "blocks.html", "Blocks and locks", h.blocksView(c), link{"blocks.json", c.root + "blocks.json"})
}

func (h *handler) blocksJSON(c *call) error { return c.writeJSON(http.StatusOK, h.blocksView(c)) }
