package admin

import (
	"slices"
	"sync"
	"time"
)

// maxNotices bounds the notices that nobody has fetched yet, and noticeFor for how long they are kept.
const (
	maxNotices = 64
	noticeFor  = time.Minute
)

// A notice is a change that succeeded.
type notice struct{ user, action, policy, key string }

// notices are shown once, to the user who made the change. The address that the answer of a change leads to is only a
// question for them, so a link and a reload put nothing on the page.
type notices struct {
	mu      sync.Mutex
	waiting []waitingNotice // the oldest first
}

type waitingNotice struct {
	notice
	since time.Time
}

func (n *notices) add(v notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == maxNotices {
		n.waiting = slices.Delete(n.waiting, 0, 1)
	}
	n.waiting = append(n.waiting, waitingNotice{v, time.Now()})
}

// take reports whether a notice is to be shown, and removes it.
func (n *notices) take(v notice) (found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = slices.DeleteFunc(n.waiting, func(w waitingNotice) bool {
		old := time.Since(w.since) >= noticeFor
		found = found || !old && w.notice == v
		return old || w.notice == v
	})
	return found
}
