package redistest

import (
	"context"
	"math"
	"net"
	"time"
)

const (
	chunkSize = 32 << 10

	// uncut is more bytes than are ever forwarded.
	uncut = math.MaxInt
)

// forwardRequests serves client until one side closes its connection.
func (p *Proxy) forwardRequests(ctx context.Context, client net.Conn) {
	defer p.remove(client)
	// The target is dialed only when it is needed: a black hole must keep the connections of clients even if the
	// target is down.
	var server net.Conn
	left := uncut
	chunk := make([]byte, chunkSize)
	for {
		n, err := client.Read(chunk)
		if err != nil {
			return
		}
		m := p.mode.Load()
		if m.dropRequests {
			continue
		}
		if m.cutRequest && p.claim(m) {
			left = m.cutAfter
		}
		if server == nil {
			server, err = p.dial(ctx)
			if err != nil {
				return
			}
			defer p.remove(server)
			p.running.Go(func() { p.forwardReplies(server, client) })
		}
		if _, err := server.Write(chunk[:min(n, left)]); err != nil {
			return
		}
		if left -= n; left <= 0 {
			return
		}
	}
}

func (p *Proxy) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return nil, err
	}
	if !p.add(server) {
		return nil, net.ErrClosed
	}
	return server, nil
}

// forwardReplies closes client at its end so that forwardRequests ends, too.
func (p *Proxy) forwardReplies(server, client net.Conn) {
	defer p.remove(client)
	left := uncut
	chunk := make([]byte, chunkSize)
	for {
		n, err := server.Read(chunk)
		if err != nil {
			return
		}
		if !p.release(time.Now()) {
			continue
		}
		if m := p.mode.Load(); m.cutReply && p.claim(m) {
			left = m.cutAfter
		}
		if _, err := client.Write(chunk[:min(n, left)]); err != nil {
			return
		}
		if left -= n; left <= 0 {
			return
		}
	}
}

// release delays a reply that arrived at the given time according to the mode, and reports whether to forward it
// then.
func (p *Proxy) release(arrived time.Time) bool {
	for {
		m := p.mode.Load()
		if m.dropReplies {
			return false
		}
		rest := time.Until(arrived.Add(m.delay))
		if rest <= 0 {
			return true
		}
		select {
		case <-time.After(rest):
		case <-m.replaced:
		}
	}
}
