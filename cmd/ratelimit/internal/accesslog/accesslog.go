// Package accesslog reads access logs and returns the requests in them.
//
// It reads the common and the combined log format and JSON lines, also gzipped. A line that it cannot read is a
// [Fault], and never ends the reading.
package accesslog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

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

// An Entry is a good line.
type Entry struct {
	Line   int64 // in the file, from 1
	Time   int64 // microseconds since 1970
	Status int   // 0: none was logged
	Bytes  int64 // of the body of the answer

	Request *http.Request // as it arrived at the server
}

// A Fault is a line that could not be read.
type Fault struct {
	Reason *Reason
	Line   int64
	Text   string // its beginning, unescaped
	Err    error  // with BrokenFile: why
}

// MaxLine is the longest line that is read, in bytes. By default, nginx and Apache refuse longer URLs
// and headers.
const MaxLine = 64 << 10

func (cfg *Config) check() error {
	var faults []error
	if cfg.Format != "" && !slices.Contains([]string{Common, Combined, JSON}, cfg.Format) {
		faults = append(faults, fmt.Errorf("-format: %q: must be common, combined or json", cfg.Format))
	}
	if len(cfg.Fields) > 0 && (cfg.Format == Common || cfg.Format == Combined) {
		faults = append(faults, fmt.Errorf("-map: the %s format has none: use format json", cfg.Format))
	}
	if len(cfg.Extra) > 0 && (cfg.Format == Common || cfg.Format == JSON) {
		faults = append(faults, fmt.Errorf("-extra: only the combined format has further quoted fields, not %s", cfg.Format))
	}
	for _, name := range cfg.Extra {
		if !requestheader.IsName(name) && !strings.EqualFold(name, "Host") {
			faults = append(faults, fmt.Errorf(`-extra: %q: must be the name of a request header, or "-" for a field to pass over`, name))
		}
	}
	return errors.Join(faults...)
}
