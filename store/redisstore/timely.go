package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// go-redis ends a command by the deadline of its context only if the client has ContextTimeoutEnabled, and has timeouts at
// all. For a *redis.Client without it, the Store makes a clone by WithTimeout. The clone has the same connections, and
// options of its own, where ContextTimeoutEnabled is set before anybody uses it. It is for lone callers only: it also
// gives up a handshake at the deadline of the command that it is for.
//
// The clone has no hooks. A redis.Conn has those of its client, as they are when it is made. So commands go to a Conn. It
// calls the hooks, and its last hook hands the command to the clone. The Conn never takes a connection, so that many
// goroutines may use it.

// timely returns what to run the commands of lone callers for client by, and reports whether it ends a command by the deadline of its
// context. Others can only be waited for apart from the caller.
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

// timelyClone returns c with ContextTimeoutEnabled, on the connections of c, with the hooks of c. If another version of
// go-redis clones clients in another way, it returns c.
func timelyClone(c *redis.Client) (Client, bool) {
	given := c.Options()
	clone := c.WithTimeout(given.ReadTimeout)
	if clone.Options() == given || copiesHooks(c) {
		return c, false
	}
	clone.Options().WriteTimeout = given.WriteTimeout
	clone.Options().ContextTimeoutEnabled = true
	if !clone.Options().ContextTimeoutEnabled {
		return c, false
	}
	hooked := c.Conn()
	hooked.AddHook(detour{clone})
	return hooked, true
}

// copiesHooks reports whether clones of c have the hooks of c. It looks at clones that send nothing.
func copiesHooks(c *redis.Client) bool {
	var calls int
	c = c.WithTimeout(0)
	c.AddHook(made{&calls})
	before := calls
	c.WithTimeout(0).AddHook(made{new(int)}) // makes all hooks of the clone anew
	return calls > before
}

// made is a hook that counts how often it is put into a chain of hooks.
type made struct{ times *int }

func (m made) DialHook(next redis.DialHook) redis.DialHook {
	*m.times++
	return next
}

func (made) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (made) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A detour is a hook that has another client run the commands.
type detour struct{ to *redis.Client }

func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d detour) ProcessHook(redis.ProcessHook) redis.ProcessHook { return d.to.Process }

func (d detour) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		pipe := d.to.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd) // only queues it
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}
