package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// go-redis ends a command at the deadline of its context only if the client has ContextTimeoutEnabled, and has
// timeouts. For a *redis.Client without that option, the Store makes a clone with WithTimeout. The clone has the same
// connections and a copy of the options. ContextTimeoutEnabled is set in this copy before the clone is used. Only lone
// callers use the clone, because it also gives up a handshake at the deadline of the command.
//
// The clone has no hooks. A redis.Conn has the hooks that its client has when the Conn is made. So commands go to a
// Conn. Its hooks run, and the last one passes the command to the clone. The Conn never takes a connection, so many
// goroutines may use it.

// timely returns the Client that runs the commands of lone callers for client, and reports whether it ends a command at
// the deadline of its context. If it does not, a caller must wait for the command in another goroutine.
func timely(client Client) (Client, bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		if o.ReadTimeout < 0 || o.WriteTimeout < 0 {
			return c, false
		}
		if o.ContextTimeoutEnabled {
			return c, true
		}
		return timelyClone(c)
	case *redis.ClusterClient:
		o := c.Options()
		return c, o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	case *redis.Ring:
		o := c.Options()
		return c, o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	default:
		return client, false
	}
}

// timelyClone returns a clone of c with ContextTimeoutEnabled, with the connections and the hooks of c. It returns c
// if another version of go-redis makes clones in another way.
func timelyClone(c *redis.Client) (Client, bool) {
	options := c.Options()
	clone := c.WithTimeout(options.ReadTimeout)
	if clone.Options() == options || copiesHooks(c) {
		return c, false
	}
	clone.Options().WriteTimeout = options.WriteTimeout
	clone.Options().ContextTimeoutEnabled = true
	if !clone.Options().ContextTimeoutEnabled {
		return c, false
	}
	hooked := c.Conn()
	hooked.AddHook(detour{clone})
	return hooked, true
}

// copiesHooks reports whether clones of c have the hooks of c. It tests this with clones that send nothing.
func copiesHooks(c *redis.Client) bool {
	var calls int
	c = c.WithTimeout(0)
	c.AddHook(made{&calls})
	before := calls
	c.WithTimeout(0).AddHook(made{new(int)}) // rebuilds the hooks of the clone
	return calls > before
}

// made is a hook that counts how often it is added to a chain of hooks.
type made struct{ times *int }

func (m made) DialHook(next redis.DialHook) redis.DialHook {
	*m.times++
	return next
}

func (made) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (made) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A detour is a hook that runs the commands with another client.
type detour struct{ to *redis.Client }

func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d detour) ProcessHook(redis.ProcessHook) redis.ProcessHook { return d.to.Process }

func (d detour) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		pipe := d.to.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd) // only queues the command
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}
