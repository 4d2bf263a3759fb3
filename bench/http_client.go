package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"time"
)

// keyHeader is the header with the key of a request.
const keyHeader = "X-Api-Key"

// httpRequest returns the bytes of a request for a key.
func httpRequest(key string) []byte {
	return fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: bench\r\n%s: %s\r\n\r\n", keyHeader, key)
}

// An httpConn is a minimal HTTP client, only for our server. It shares the cores with the server, so it must cost
// less.
type httpConn struct {
	conn   net.Conn
	reader *bufio.Reader
}

func dialHTTP(address string) (*httpConn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &httpConn{conn, bufio.NewReaderSize(conn, 1024)}, nil
}

var (
	statusOK       = []byte("HTTP/1.1 200 ")
	contentLength  = []byte("Content-Length: ")
	limitRemaining = []byte("X-Ratelimit-Remaining: ")
)

// get sends a request and reads the whole response, which must be 200. It reports whether the response has rate limit
// headers.
func (c *httpConn) get(request []byte) (limited bool, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return false, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return false, err
	}
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return false, err
	}
	if !bytes.HasPrefix(line, statusOK) {
		return false, fmt.Errorf("answered %q", bytes.TrimSpace(line))
	}
	length := -1
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return false, err
			}
		}
		limited = limited || bytes.HasPrefix(line, limitRemaining)
	}
	if length < 0 {
		return false, fmt.Errorf("answered without a Content-Length")
	}
	_, err = c.reader.Discard(length)
	return limited, err
}
