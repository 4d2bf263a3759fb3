// Package accesslog reads access logs and returns the requests in them.
//
// It reads the common and the combined log format and JSON lines, also gzipped. A line that it cannot read is a
// [Fault], and never ends the reading.
package accesslog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// The formats.
const (
	Common   = "common"
	Combined = "combined"
	JSON     = "json"
)

// Config configures a [Reader].
type Config struct {
	Files  []File
	Format string // "": found out from the first lines

	// Fields says where JSON lines have what is read, by our names: time, addr, method, url, request, status, bytes,
	// host, header.NAME. A value is the name in the log. It has dots for fields of fields. Fields that are not set have
	// the names that common servers use.
	Fields map[string]string

	// Extra are the names of the request headers in the quoted fields after the user agent of a combined log.
	Extra []string

	// Context is the context of the requests. Default: the background.
	Context context.Context
}

// A File is a log, which may be gzipped.
type File struct {
	Name string
	io.Reader
}

// An Entry is a good line.
type Entry struct {
	File   int   // number of the file
	Line   int64 // in the file, from 1
	Time   int64 // microseconds since 1970
	Status int   // 0: none was logged
	Bytes  int64 // of the body of the answer

	Request *http.Request // as it arrived at the server. It is valid until the batch is recycled

	own own
}

// A Fault is a line that could not be read.
type Fault struct {
	Reason Reason
	File   int
	Line   int64
	Text   string // its beginning, unescaped
	Err    error  // with BrokenFile: why
}

// A Batch holds the next lines of the logs, in their order.
type Batch struct {
	Entries []Entry
	Faults  []Fault
	Lines   int64 // good and bad
	Bytes   int64 // after decompression
	Format  string

	text int // bytes of the lines
	used int // entries of it, or of earlier batches, that refer to text
}

const (
	// MaxLine is the longest line that is read, in bytes.
	MaxLine = 1 << 20

	firstBatch = 16
	batchSize  = 1024        // lines
	batchText  = MaxLine / 2 // bytes: a batch with as much is full, because its entries hold on to the text
	batches    = 6           // in flight
	shown      = 256
)

// A Reader reads logs. Make it with [NewReader].
type Reader struct {
	cfg     Config
	parser  *parser
	stored  atomic.Int64
	chunks  chan chunk
	batches chan *Batch
	free    chan *Batch
	size    int // of the last batch that was made
	stop    chan struct{}
}

// NewReader returns a Reader that has begun to read the files of cfg. Call Close when it is no longer used. The error names
// what is wrong with cfg.
func NewReader(cfg Config) (*Reader, error) {
	if cfg.Context == nil {
		cfg.Context = context.Background()
	}
	p, err := newParser(cfg)
	if err != nil {
		return nil, err
	}
	r := &Reader{
		cfg:     cfg,
		parser:  p,
		chunks:  make(chan chunk, 4),
		batches: make(chan *Batch, batches),
		free:    make(chan *Batch, batches+2),
		stop:    make(chan struct{}),
	}
	go r.readAll()
	go r.parseAll()
	return r, nil
}

// Batches returns the channel of the batches. It is closed after the last one. Give each back with Recycle.
func (r *Reader) Batches() <-chan *Batch { return r.batches }

// Recycle lets the Reader use a batch again.
func (r *Reader) Recycle(b *Batch) {
	select {
	case r.free <- b:
	default:
	}
}

// Stored returns how many bytes of the files were read, before decompression.
func (r *Reader) Stored() int64 { return r.stored.Load() }

// Close ends the reading. A call of a file's Read that has begun goes on until it returns.
func (r *Reader) Close() { close(r.stop) }

// Check returns what is wrong with cfg, without its files.
func Check(cfg Config) error {
	_, err := newParser(cfg)
	return err
}

func (cfg *Config) check() error {
	var faults []error
	if cfg.Format != "" && !slices.Contains([]string{Common, Combined, JSON}, cfg.Format) {
		faults = append(faults, fmt.Errorf("format %q: must be common, combined or json, or empty to find it out", cfg.Format))
	}
	if len(cfg.Fields) > 0 && (cfg.Format == Common || cfg.Format == Combined) {
		faults = append(faults, fmt.Errorf("fields: the %s format has none: use format json", cfg.Format))
	}
	if len(cfg.Extra) > 0 && (cfg.Format == Common || cfg.Format == JSON) {
		faults = append(faults, fmt.Errorf("extra: only the combined format has further quoted fields, not %s", cfg.Format))
	}
	for _, name := range cfg.Extra {
		if !requestheader.IsName(name) && !strings.EqualFold(name, "Host") {
			faults = append(faults, fmt.Errorf(`extra %q: must be the name of a request header, or "-" for a field to pass over`, name))
		}
	}
	return errors.Join(faults...)
}
