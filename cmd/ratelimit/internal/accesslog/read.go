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

// shown is how much of a line that cannot be read is in its Fault, in bytes.
const shown = 256

// Lines returns the lines of a log, which may be gzipped. Each is an entry or a fault.
func (r *Reader) Lines(log io.Reader) iter.Seq2[*Entry, *Fault] {
	return func(yield func(*Entry, *Fault) bool) {
		var number int64
		lines, err := unpack(log)
		for err == nil {
			var text string
			var reason *Reason
			text, reason, err = r.next(lines)
			if text == "" && err != nil {
				break
			}
			number++
			entry := &Entry{Line: number}
			if reason == nil {
				reason = r.parse(text, entry)
			}
			var fault *Fault
			if reason != nil {
				entry, fault = nil, &Fault{Reason: reason, Line: number, Text: strings.Clone(text[:min(len(text), shown)])}
			}
			if !yield(entry, fault) {
				return
			}
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the compressed data ends early")
		}
		if err != io.EOF {
			yield(nil, &Fault{Reason: BrokenFile, Line: max(number, 1), Err: err})
		}
	}
}

// next returns the next line without its end. Of a line above MaxLine it returns the beginning.
func (r *Reader) next(lines *bufio.Reader) (text string, reason *Reason, err error) {
	line, err := lines.ReadSlice('\n')
	r.Bytes += int64(len(line))
	text = string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")))
	if len(text) > MaxLine {
		reason = TooLong
	}
	for err == bufio.ErrBufferFull {
		reason = TooLong
		line, err = lines.ReadSlice('\n')
		r.Bytes += int64(len(line))
	}
	return text, reason, err
}

// unpack returns the text of log, which may be compressed.
func unpack(log io.Reader) (*bufio.Reader, error) {
	stored := bufio.NewReaderSize(log, MaxLine+2) // with the end of the line
	if magic, _ := stored.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return stored, nil
	}
	unpacked, err := gzip.NewReader(stored)
	return bufio.NewReaderSize(unpacked, MaxLine+2), err
}
