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
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
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
	Clients   int               // how many keys of each policy are kept; default 1,000,000
	HideKeys  bool              // show HMACs of keys under a random secret
	Decisions io.Writer         // if set, gets a JSON line for each request and policy
	Progress  func(Progress)    // if set, is called about five times a second
}

// A Log is an access log, which may be gzipped.
type Log struct {
	Name string
	io.Reader
	Size int64 // bytes as they are read, or 0 if that is not known
}

// Progress is how far a simulation is.
type Progress struct {
	Lines      int64
	Read, Size int64 // bytes of the logs as they are stored; Size is 0 if it is not known
}

// ErrNothing is wrapped by the error of [Run] if no line could be read. The report has the reasons.
var ErrNothing = errors.New("no request could be read")

const (
	defaultSpare   = 0.999
	defaultClients = 1_000_000

	progressEvery = 200 * time.Millisecond
)

// Run runs the simulation. If ctx ends, it returns the report so far, marked Incomplete, and ctx's error. It bounds the
// memory of the process by cfg.Memory, with [debug.SetMemoryLimit], while it runs.
func Run(ctx context.Context, cfg Config) (*report.Report, error) {
	return run(ctx, cfg, setupOf(cfg.Policies))
}

// check completes cfg.
func (cfg *Config) check() error {
	var faults []error
	if cfg.Spare == 0 {
		cfg.Spare = defaultSpare
	}
	if !(cfg.Spare > 0 && cfg.Spare <= 1) {
		faults = append(faults, fmt.Errorf("spare %v: must be a share above 0 and up to 100%%, such as 99.9%%", cfg.Spare))
	}
	if cfg.Clients < 0 || cfg.Clients > maxClients {
		faults = append(faults, fmt.Errorf("clients %d: must be from 1 to %d; 0 means the default of %d", cfg.Clients, maxClients, defaultClients))
	}
	if cfg.Clients == 0 {
		cfg.Clients = defaultClients
	}
	if len(cfg.Logs) == 0 {
		faults = append(faults, errors.New(`logs: none is given: name files, or "-" for the standard input`))
	}
	if _, err := cfg.reader(context.Background()); err != nil {
		faults = append(faults, err)
	}
	if faults != nil {
		return fmt.Errorf("simulate: %w", errors.Join(faults...))
	}
	return nil
}

// reader returns what reads the logs. Requests have the context ctx.
func (cfg *Config) reader(ctx context.Context) (*accesslog.Reader, error) {
	return accesslog.NewReader(accesslog.Config{Format: cfg.Format, Fields: cfg.Fields, Extra: cfg.Extra, Context: ctx})
}

// size returns the bytes of all logs, 0 if they are not known.
func (cfg *Config) size() (all int64) {
	for _, log := range cfg.Logs {
		if log.Size <= 0 {
			return 0
		}
		all += log.Size
	}
	return all
}
