package redisstore

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	decisionTimeout = 100 * time.Millisecond // the default of ratelimit.Config.Timeout
	maxDialTimeout  = time.Second
)

// settings are the options of a client in force. A timeout of 0 means none. Below 0, the client sets no deadlines at
// all.
type settings struct {
	read, write, dial time.Duration
	dials             int
	byContext         bool
	backoff           bool // before redirects
}

// settingsOf returns the settings of a client, if it is of a known type.
func settingsOf(client Client) (s settings, known bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		return settings{o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.DialerRetries, o.ContextTimeoutEnabled, false}, true
	case *redis.ClusterClient:
		o := c.Options()
		return settings{o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.DialerRetries, o.ContextTimeoutEnabled, o.MinRetryBackoff > 0}, true
	case *redis.Ring:
		// These options are as the caller set them. The shards apply the defaults of go-redis.
		o := c.Options()
		read := cmp.Or(o.ReadTimeout, 5*time.Second)
		write := cmp.Or(o.WriteTimeout, read)
		dials := o.DialerRetries
		if dials <= 0 {
			dials = 5
		}
		return settings{read + none(read), write + none(write), cmp.Or(o.DialTimeout, 5*time.Second), dials, o.ContextTimeoutEnabled, false}, true
	default:
		return settings{}, false
	}
}

// none converts an option of -1 to 0, and of -2 to -1.
func none(timeout time.Duration) time.Duration {
	if timeout < 0 {
		return 1
	}
	return 0
}

// clientFindings returns the problems of a client. timely is set if the client ends a command at the deadline of its
// context.
func clientFindings(client Client, timely bool) (findings []string) {
	s, known := settingsOf(client)
	if !known {
		return nil
	}
	s.byContext = s.byContext || timely
	endless := s.read <= 0 || s.write <= 0
	switch waits := max(s.read, s.write); {
	case s.byContext && (s.read < 0 || s.write < 0):
		findings = append(findings, "The client sets no deadlines, because its ReadTimeout or WriteTimeout is -2, so a Redis that hangs keeps its connections for ever: leave them at what redisstore.Options sets.")
	case s.byContext:
	case endless:
		findings = append(findings, "The client waits for a reply for ever, so a Redis that hangs keeps its connections: set ContextTimeoutEnabled and a ReadTimeout and WriteTimeout, as redisstore.Options does.")
	case waits > decisionTimeout:
		findings = append(findings, fmt.Sprintf("The client waits up to %v for a reply, so a Redis that hangs keeps its connections for longer than the %v that ratelimit.Config.Timeout gives a decision: set ContextTimeoutEnabled, as redisstore.Options does.", waits, decisionTimeout))
	}
	if s.dial > maxDialTimeout {
		findings = append(findings, fmt.Sprintf("The client's DialTimeout is %v, for which a connection that cannot be made keeps its place in the pool: set it to %v, as redisstore.Options does, or at most to %v.", s.dial, dialTimeout, maxDialTimeout))
	}
	if s.dials > 1 {
		findings = append(findings, fmt.Sprintf("The client dials %d times before it gives up, so each decision takes its whole timeout while Redis refuses connections: set DialerRetries to 1, as redisstore.Options does.", s.dials))
	}
	if s.backoff {
		findings = append(findings, "The client waits before it follows redirects of several commands, so calls may run into their deadlines while slots of the cluster move: set MinRetryBackoff to -1, as redisstore.ClusterOptions does.")
	}
	return findings
}
