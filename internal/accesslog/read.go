package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
)

// A chunk is some whole lines of a file.
type chunk struct {
	file  int
	text  string
	kind  chunkKind
	err   error // of brokenFile
	bytes int64 // of the file
}

type chunkKind int

const (
	wholeLines chunkKind = iota
	longLine             // text is the beginning of a line above MaxLine
	brokenFile           // it cannot be read further
)

// readAll reads all files into r.chunks.
func (r *Reader) readAll() {
	defer close(r.chunks)
	buffer := make([]byte, firstBuffer)
	for i, f := range r.cfg.Files {
		if !r.readFile(i, f, &buffer) {
			return
		}
	}
}

// counted counts the bytes of a file as they are stored.
type counted struct {
	io.Reader
	r *Reader
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.r.stored.Add(int64(n))
	return n, err
}

// unpacked returns f without its compression, if it has one.
func unpacked(f io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(f, 16<<10)
	if magic, _ := buffered.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

const (
	firstBuffer = 16 << 10
	maxBuffer   = MaxLine + 1 // and the end of the line
)

// readFile reads a file. It returns false if the Reader was closed. The buffer grows, so that it is small for small logs.
func (r *Reader) readFile(n int, f File, grown *[]byte) bool {
	from, err := unpacked(counted{f.Reader, r})
	buffer, held, skipping := *grown, 0, false // skipping: in a line that is too long
	for err == nil {
		if held == len(buffer) {
			buffer = make([]byte, min(maxBuffer, 4*held))
			copy(buffer, *grown)
			*grown = buffer
		}
		var got int
		got, err = from.Read(buffer[held:])
		fresh := buffer[held : held+got]
		held += got
		c := chunk{file: n, bytes: int64(got)}
		switch end := bytes.LastIndexByte(fresh, '\n'); {
		case skipping && end < 0:
			held = 0
		case skipping:
			begin := bytes.IndexByte(fresh, '\n') + 1
			held = copy(buffer, fresh[begin:])
			skipping = false
			if last := bytes.LastIndexByte(buffer[:held], '\n') + 1; last > 0 {
				c.text = string(buffer[:last])
				held = copy(buffer, buffer[last:held])
			}
		case held == maxBuffer || end >= 0 && held > maxBuffer/2:
			last := bytes.LastIndexByte(buffer[:held], '\n') + 1
			if last == 0 && held == maxBuffer {
				c.kind, c.text = longLine, string(buffer[:shown])
				held, skipping = 0, true
				break
			}
			c.text = string(buffer[:last])
			held = copy(buffer, buffer[last:held])
		}
		if !r.send(c) {
			return false
		}
	}
	if !r.send(chunk{file: n, text: string(buffer[:held])}) { // the last line may have no end
		return false
	}
	if err == io.EOF {
		return true
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the compressed data ends early")
	}
	return r.send(chunk{file: n, kind: brokenFile, err: err})
}

func (r *Reader) send(c chunk) bool {
	if c.kind == wholeLines && c.text == "" && c.bytes == 0 {
		return true
	}
	select {
	case <-r.stop:
		return false
	default:
	}
	select {
	case r.chunks <- c:
		return true
	case <-r.stop:
		return false
	}
}

// parseAll makes batches of r.chunks.
func (r *Reader) parseAll() {
	defer close(r.batches)
	b := r.batch()
	file, line := -1, int64(0)
	full := func() bool {
		if len(b.Entries)+len(b.Faults) < cap(b.Entries) && b.text < batchText {
			return true
		}
		return r.deliver(&b)
	}
	for c := range r.chunks {
		if c.file != file {
			file, line = c.file, 0
		}
		b.Bytes += c.bytes
		switch c.kind {
		case longLine:
			line++
			b.Lines++
			b.fault(TooLong, c.file, line, c.text)
		case brokenFile:
			b.Faults = append(b.Faults, Fault{Reason: BrokenFile, File: c.file, Line: max(line, 1), Err: c.err})
		}
		if c.kind != wholeLines {
			if !full() {
				return
			}
			continue
		}
		if r.parser.format == "" && c.text != "" {
			r.parser.format = r.parser.formatOf(c.text)
		}
		for rest := c.text; rest != ""; {
			var text string
			text, rest, _ = strings.Cut(rest, "\n")
			text = strings.TrimSuffix(text, "\r")
			line++
			b.Lines++
			b.text += len(text)
			b.parse(r.parser, c.file, line, text)
			if !full() {
				return
			}
		}
	}
	if b.Lines > 0 || b.Bytes > 0 || len(b.Faults) > 0 {
		r.deliver(&b)
	}
}

func (b *Batch) fault(reason Reason, file int, line int64, text string) {
	if len(text) > shown {
		text = text[:shown]
	}
	b.Faults = append(b.Faults, Fault{Reason: reason, File: file, Line: line, Text: strings.Clone(text)})
}

func (b *Batch) parse(p *parser, file int, line int64, text string) {
	n := len(b.Entries)
	b.Entries = b.Entries[:n+1]
	e := &b.Entries[n]
	e.File, e.Line = file, line
	if reason := p.parse(text, e); reason != good {
		b.Entries = b.Entries[:n]
		b.fault(reason, file, line, text)
	}
}

// batch returns an empty batch. The first ones are small, for small logs.
func (r *Reader) batch() *Batch {
	r.size = min(batchSize, max(firstBatch, 2*r.size))
	select {
	case b := <-r.free:
		if cap(b.Entries) == r.size {
			b.Entries, b.Faults, b.Lines, b.Bytes, b.text = b.Entries[:0], b.Faults[:0], 0, 0, 0
			return b
		}
	default:
	}
	return &Batch{Entries: make([]Entry, 0, r.size)}
}

// forget clears what is behind the entries of b: those of earlier batches, and one of a bad line.
func (b *Batch) forget() {
	n := len(b.Entries)
	clear(b.Entries[n:min(cap(b.Entries), max(n+1, b.used))])
	b.used = n
}

func (r *Reader) deliver(b **Batch) bool {
	(*b).Format = r.parser.format
	(*b).forget()
	select {
	case r.batches <- *b:
		*b = r.batch()
		return true
	case <-r.stop:
		return false
	}
}
