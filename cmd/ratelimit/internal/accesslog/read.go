package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"iter"
	"strings"
)

// A Reader reads logs, one after another. One goroutine uses it. Make it with [NewReader].
type Reader struct {
	parser *parser
	bytes  int64
}

// NewReader returns a Reader. The error names what is wrong with cfg.
func NewReader(cfg Config) (*Reader, error) {
	p, err := newParser(cfg)
	if err != nil {
		return nil, err
	}
	return &Reader{parser: p}, nil
}

// Format returns the format of the logs, "" until it is found out.
func (r *Reader) Format() string { return r.parser.format }

// Bytes returns how many bytes were read, after decompression.
func (r *Reader) Bytes() int64 { return r.bytes }

// shown is how much of a line that cannot be read is in its Fault, in bytes.
const shown = 256

// Lines returns the lines of a log, which may be gzipped. Each is an entry or a fault.
func (r *Reader) Lines(log io.Reader) iter.Seq2[*Entry, *Fault] {
	return func(yield func(*Entry, *Fault) bool) {
		var number int64
		unpacked, err := unpack(log)
		if err != nil {
			yield(nil, &Fault{Reason: BrokenFile, Line: 1, Err: err})
			return
		}
		lines := bufio.NewReaderSize(unpacked, MaxLine+2) // with the end of the line
		for {
			text, isLong, err := r.next(lines)
			if text != "" || err == nil {
				number++
				entry, fault := r.line(lines, text, isLong)
				if entry != nil {
					entry.Line, entry.Size = number, len(text)
				} else {
					fault.Line, fault.Text = number, strings.Clone(text[:min(len(text), shown)])
				}
				if !yield(entry, fault) {
					return
				}
			}
			if err != nil {
				if errors.Is(err, io.ErrUnexpectedEOF) {
					err = errors.New("the compressed data ends early")
				}
				if err != io.EOF {
					yield(nil, &Fault{Reason: BrokenFile, Line: max(number, 1), Err: err})
				}
				return
			}
		}
	}
}

// line reads a line. Those behind it help to find out the format.
func (r *Reader) line(behind *bufio.Reader, text string, isLong bool) (*Entry, *Fault) {
	if isLong {
		return nil, &Fault{Reason: TooLong}
	}
	if r.parser.format == "" && strings.TrimSpace(text) != "" {
		more, _ := behind.Peek(behind.Buffered())
		r.parser.format = r.parser.formatOf(text + "\n" + string(more))
	}
	var e Entry
	if reason := r.parser.parse(text, &e); reason != good {
		return nil, &Fault{Reason: reason}
	}
	return &e, nil
}

// next returns the next line without its end. Of a line above MaxLine it returns the beginning.
func (r *Reader) next(lines *bufio.Reader) (text string, isLong bool, err error) {
	line, err := lines.ReadSlice('\n')
	r.bytes += int64(len(line))
	text = string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")))
	isLong = len(text) > MaxLine
	for err == bufio.ErrBufferFull {
		isLong = true
		line, err = lines.ReadSlice('\n')
		r.bytes += int64(len(line))
	}
	return text, isLong, err
}

// unpack returns log without its compression, if it has one.
func unpack(log io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(log, 64<<10)
	if magic, _ := buffered.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}
