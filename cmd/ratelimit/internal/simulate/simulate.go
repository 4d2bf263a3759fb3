// Package simulate decides about the requests of access logs under the policies of a file, in virtual time.
//
// Each request goes through [ratelimit.Limiter.Handler] and Limit, mounted as the file says, on a memory store whose clock
// is the time of the line. So a simulation decides what the middleware decides when the log is replayed against it:
//
//	report, err := simulate.Run(ctx, simulate.Config{Policies: file, Logs: logs})
//
// # Order
//
// Lines are taken in the order of the files. The clock goes back with lines that are earlier than the line before. A request
// that waits for its tokens goes on when the lines have come to the end of its wait. Its decisions are written then.
//
// # Memory
//
// [Config.Memory] bounds the memory before a run. Clients beyond [Config.Clients] are decided about, too, and are in the
// totals. They are in no list and no curve.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"unsafe"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// Config configures [Run].
type Config struct {
	Policies  *policyfile.File
	Logs      []Log
	Format    string            // "common", "combined", "json"; "": found out from the first lines
	Fields    map[string]string // of JSON lines: name of ours to name in the log
	Extra     []string          // names of the request headers that follow in a combined log
	Spare     float64           // the share of clients for report.Spare; default 0.999
	Exclude   []string          // keys, as the report has them without HideKeys, that no advice is for
	Clients   int               // how many keys of each policy are kept, at most MaxClients; default DefaultClients
	HideKeys  bool              // show HMACs of keys under a random secret
	Decisions io.Writer         // if set, gets a JSON line for each request and policy
}

// A Log is an access log, which may be gzipped.
type Log struct {
	Name string
	io.Reader
}

// ErrNothing is wrapped by the error of [Run] if no line could be read. The report has the reasons.
var ErrNothing = errors.New("no request could be read")

// The numbers of [Config.Clients].
const (
	DefaultClients = 1_000_000
	MaxClients     = 1 << 28
)

// Run runs the simulation. If ctx ends, it returns the report so far, marked Incomplete, and ctx's error. It bounds the
// memory of the process by cfg.Memory, with [debug.SetMemoryLimit], while it runs.
func Run(ctx context.Context, cfg Config) (*report.Report, error) {
	return run(ctx, cfg, setupOf(cfg.Policies))
}

// A setup is the policies of a simulation, and how they are mounted.
type setup struct {
	policies []ratelimit.Policy // all that are simulated, in the order of the report
	listed   []ratelimit.Policy // those of Config.Policies
	on       map[string]string  // the patterns of the others, by name
	leftOut  []policyfile.Mount // policies with functions that only the program has, and those of slots
	mount    func(*ratelimit.Limiter, http.Handler) http.Handler
}

func setupOf(f *policyfile.File) setup {
	s := setup{policies: slices.DeleteFunc(f.Policies(), HasSlots), listed: f.Everywhere(), on: make(map[string]string), mount: f.Handler}
	for _, m := range f.Mounts() {
		s.on[m.Policy.Name] = strings.Join(m.On, ", ")
		if len(m.Unknown) > 0 || HasSlots(m.Policy) {
			s.leftOut = append(s.leftOut, m)
		}
	}
	return s
}

// HasSlots reports whether a policy has a concurrency limit. Such a policy is left out: a log does not say how long a request
// ran.
func HasSlots(p ratelimit.Policy) bool { return p.Limit.IsConcurrency() }

const (
	// baseMemory is what a run takes for any number of clients: the log on its way, and what the collector has not
	// collected yet.
	baseMemory = 96 << 20

	// bucketMemory is what a bucket of package memstore takes, with its lock and the longest key.
	bucketMemory = 110 + 120 + keyname.MaxShort

	// clientMemory is what a client takes in a tally: with the longest key, and its part of the map and of the list, which
	// may be half empty.
	clientMemory = int64(unsafe.Sizeof(client{})) + keyname.MaxShort + 2*(24+1) + 2*8

	// waiting is how many requests wait at most, which is the default of Config.MaxWaiting of a limiter, and waiterMemory
	// what the stack of each takes.
	waiting      = 1024
	waiterMemory = 48 << 10
)

// buckets returns how many buckets are kept. Shards of the store hold not the same number.
func (cfg *Config) buckets(policies int) int {
	return int(min(math.MaxInt32, int64(cfg.Clients)*int64(max(1, policies))*6/5+4096))
}

// Memory returns how many bytes a run takes at most.
func (cfg Config) Memory() int64 { return cfg.memory(setupOf(cfg.Policies).policies) }

func (cfg Config) memory(all []ratelimit.Policy) int64 {
	cfg.Clients = cmp.Or(cfg.Clients, DefaultClients)
	base, policies := int64(baseMemory), len(all)
	if slices.ContainsFunc(all, func(p ratelimit.Policy) bool { return p.MaxWait > 0 }) {
		base += waiting * (waiterMemory + accesslog.MaxLine*int64(1+policies)) // each policy may make a key of a line
	}
	each := clientMemory*int64(cfg.Clients)*int64(policies) + bucketMemory*int64(cfg.buckets(policies))
	return base + each/8*9
}
