package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// BenchmarkHTTP compares requests over HTTP to another process, with and without the middleware on Redis. The client
// shares the cores with the server.
func BenchmarkHTTP(b *testing.B) {
	b.Run("10,000 keys, 256 connections", func(b *testing.B) {
		s := startRedis(b, 1)
		load{callers: 256, keys: 10_000, redis: s}.run(b,
			side{"Limiter.Handler on redisstore", overHTTP(b, s[0].address, true)}, side{"no limiter", overHTTP(b, "", false)})
	})
}

// serveOn as an environment variable makes the test binary a server, with a limiter on the Redis with that address, or
// without one. The server must not share a Go runtime with its clients.
const serveOn = "BENCH_SERVE_ON"

func TestMain(m *testing.M) {
	if address, serving := os.LookupEnv(serveOn); serving {
		fmt.Fprintln(os.Stderr, serve(address))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve prints its address, and serves until its standard input ends, with the process that started it.
func serve(redisAddress string) error {
	handler := http.Handler(http.HandlerFunc(greet))
	if redisAddress != "" {
		options, err := redisstore.Options("redis://" + redisAddress)
		if err != nil {
			return err
		}
		limiter, err := ratelimit.New(ratelimit.Config{
			Store:    ratelimit.Must(redisstore.New(redis.NewClient(options), redisstore.Config{})),
			Timeout:  limiterTimeout, // so that a busy machine lets no request through unlimited
			Policies: policiesOf([]ratelimit.Limit{endless}),
		})
		if err != nil {
			return err
		}
		handler = limiter.Handler(handler)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, handler)
}

// overHTTP starts a server until b ends, and returns functions that send requests, each with a connection of its own.
func overHTTP(b *testing.B, redisAddress string, limited bool) func() take {
	program, err := os.Executable()
	check(b, err)
	process := exec.Command(program)
	process.Env, process.Stderr = append(os.Environ(), serveOn+"="+redisAddress), os.Stderr
	stdin, err := process.StdinPipe()
	check(b, err)
	stdout, err := process.StdoutPipe()
	check(b, err)
	check(b, process.Start())
	b.Cleanup(func() {
		stdin.Close()
		process.Wait()
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	check(b, err)
	return func() take {
		conn, err := dialHTTP(strings.TrimSpace(address))
		if err != nil {
			return func(context.Context, string) (bool, error) { return false, err }
		}
		b.Cleanup(func() { conn.conn.Close() })
		return func(_ context.Context, key string) (bool, error) {
			was, err := conn.get(httpRequest(key))
			if err == nil && was != limited {
				err = errNotLimited
			}
			return err == nil, err
		}
	}
}

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
