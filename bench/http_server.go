package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A site is a server that greets.
type site int

const (
	bareSite    site = iota
	limitedSite      // by the middleware on Redis
)

func (s site) String() string {
	return [...]string{"the bare handler", "the whole middleware on redisstore"}[s]
}

// argument returns the command line argument for the site.
func (s site) argument() string { return [...]string{"bare", "limited"}[s] }

// serveArgument as the first argument makes this program a server. The server must not share a Go runtime with its
// clients. The site and the address of Redis follow it.
const serveArgument = "serve"

// serve prints its address, and serves until its standard input ends. That happens when the process that started it
// ends.
func serve(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("%s: must be followed by a site and the address of Redis", serveArgument)
	}
	handler := http.Handler(http.HandlerFunc(greet))
	switch arguments[0] {
	case bareSite.argument():
	case limitedSite.argument():
		client, err := newClient(arguments[1], advised)
		if err != nil {
			return err
		}
		limiter, err := ratelimit.New(ratelimit.Config{
			Store:    redisstore.New(client, redisstore.Config{}),
			Timeout:  5 * time.Second, // so that a busy machine lets no request through unlimited
			Policies: []ratelimit.Policy{{Name: "bench", Key: ratelimit.Header(keyHeader), Limit: endless}},
		})
		if err != nil {
			return err
		}
		handler = limiter.Handler(handler)
	default:
		return fmt.Errorf("%s: no site %q", serveArgument, arguments[0])
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

// An httpServer is a process that serves a site.
type httpServer struct {
	address string
	process *exec.Cmd
	stdin   io.Closer
}

func startSite(ctx context.Context, s site, redisAddress string) (*httpServer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, program, serveArgument, s.argument(), redisAddress)
	process.Stderr = os.Stderr
	stdin, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	h := &httpServer{process: process, stdin: stdin}
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		h.stop()
		return nil, fmt.Errorf("server process: %w", err)
	}
	h.address = strings.TrimSpace(address)
	return h, nil
}

func (h *httpServer) stop() {
	h.stdin.Close()
	h.process.Wait()
}
