package redistest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a TCP proxy that can delay, lose or cut the traffic between clients and a server.
//
// It has one mode at a time: Pass at first, then the mode set last by Pass, DropReplies, BlackHole, Delay, CutRequest
// or CutReply. A mode applies to new connections. It also applies at once to existing connections, and to replies
// that are being delayed. Bytes that the proxy has dropped stay lost when the mode changes.
//
// The proxy connects to the target when a client first sends bytes that are forwarded. It closes a client's
// connection if the target cannot be reached.
type Proxy struct {
	target   string
	listener net.Listener
	mode     atomic.Pointer[mode]

	// running counts the goroutines of the proxy.
	running sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // of clients and to the target; guarded by mu
	closed bool                  // guarded by mu
}

// mode says what happens to the traffic. It is not changed but replaced.
type mode struct {
	dropRequests bool
	dropReplies  bool
	delay        time.Duration // of replies
	cutRequest   bool
	cutReply     bool
	cutAfter     int // bytes, for cutRequest and cutReply

	// replaced is closed when the mode is no longer in force.
	replaced chan struct{}
}

// NewProxy starts a proxy on a free port before target, a host:port. When the
// test ends, the proxy closes all connections and waits for its goroutines.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	p := &Proxy{target: target, listener: listener, conns: make(map[net.Conn]struct{})}
	p.mode.Store(newMode(mode{}))
	ctx, cancel := context.WithCancel(context.Background())
	p.running.Go(func() { p.accept(ctx) })
	tb.Cleanup(func() {
		cancel()
		p.close()
	})
	return p
}

// Addr returns the host:port that the proxy listens on.
func (p *Proxy) Addr() string {
	return p.listener.Addr().String()
}

// Pass forwards requests and replies unchanged.
func (p *Proxy) Pass() {
	p.setMode(mode{})
}

// DropReplies forwards requests and throws away the replies.
func (p *Proxy) DropReplies() {
	p.setMode(mode{dropReplies: true})
}

// BlackHole accepts connections and throws away requests and replies. While it
// lasts, no connection to the target is made.
func (p *Proxy) BlackHole() {
	p.setMode(mode{dropRequests: true, dropReplies: true})
}

// Delay forwards requests at once and holds back each chunk of replies for d.
// The next chunk of the same connection is read only after that.
func (p *Proxy) Delay(d time.Duration) {
	p.setMode(mode{delay: d})
}

// CutRequest forwards the first n bytes that a client sends from now on, and then closes the connection. If the
// client sends fewer, its next bytes count, too. Only one connection is cut: the mode is Pass again from its first
// byte on.
func (p *Proxy) CutRequest(n int) {
	p.setMode(mode{cutRequest: true, cutAfter: n})
}

// CutReply is like CutRequest for the next reply. The target has then received
// the whole request.
func (p *Proxy) CutReply(n int) {
	p.setMode(mode{cutReply: true, cutAfter: n})
}

// Cut closes all current connections. It does not change the mode, and new
// connections are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *Proxy) cutLocked() {
	for conn := range p.conns {
		_ = conn.Close()
	}
	clear(p.conns)
}

func newMode(m mode) *mode {
	m.replaced = make(chan struct{})
	return &m
}

func (p *Proxy) setMode(m mode) {
	close(p.mode.Swap(newMode(m)).replaced)
}

// claim ends m in favor of Pass and reports true to only one of its callers.
func (p *Proxy) claim(m *mode) bool {
	if !p.mode.CompareAndSwap(m, newMode(mode{})) {
		return false
	}
	close(m.replaced)
	return true
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.cutLocked()
	p.mu.Unlock()
	// Delayed replies would otherwise keep their goroutines until they are due.
	p.Pass()
	p.running.Wait()
}

// add makes conn one of those that Cut closes. It closes conn and returns false
// if the proxy was closed in the meantime.
func (p *Proxy) add(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

// remove closes conn and forgets it.
func (p *Proxy) remove(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.add(client) {
			p.running.Go(func() { p.forwardRequests(ctx, client) })
		}
	}
}
