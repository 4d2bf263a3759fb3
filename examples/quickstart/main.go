// Quickstart is a small API with limits, to try with curl, and a page at /admin/ that shows them. It runs on an
// embedded Redis unless -redis names a real one.
//
//	go run ./examples/quickstart [-addr 127.0.0.1:8080] [-redis redis://host:port/db] [-trusted-proxies CIDR,…]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage): // the flag package has printed it
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "`address` to listen on")
	redisURL := flags.String("redis", "", "`URL` of a Redis, as redis://host:port/db (default: an embedded one)")
	proxies := flags.String("trusted-proxies", "", "networks of proxies whose X-Forwarded-For is believed, as `CIDR,…`")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	trusted, err := ratelimit.ParseNetworks(*proxies)
	if err != nil {
		return fmt.Errorf("-trusted-proxies: %w", err)
	}
	client, uses, closeRedis, err := openRedis(*redisURL)
	if err != nil {
		return err
	}
	defer closeRedis()

	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	cfg := ratelimit.Config{Store: buckets, Timeout: embeddedTimeout}
	if *redisURL != "" {
		backed := ratelimit.Must(fallback.New(buckets, nil, fallback.Config{})) // limits go on in memory while Redis is unavailable
		defer backed.Close()
		cfg = ratelimit.Config{Store: backed}
	}
	handler, err := newAPI(ctx, cfg, trusted, buckets)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	base := "http://" + reachable(listener.Addr())
	fmt.Fprintf(out, "Admin:     %s\n", describeAdmin(listener.Addr(), base))
	fmt.Fprintf(out, "Buckets:   %s\n", uses)
	printFindings(ctx, out, buckets)
	fmt.Fprintf(out, "Client IP: %s\n", describeTrust(trusted))
	fmt.Fprintf(out, "Listening: %s\n\nTry:\n", base)
	for _, line := range []string{
		"curl -i %s/hello                  # 1 per second, 5 at once: the sixth is refused",
		"curl -i -X POST %s/login          # 3 per minute and address",
		"curl -i %s/items/7                # 10 per second each, 50 per second all together",
		"for i in 1 2 3; do curl -s %s/export & done; wait   # 2 at once: the third is refused",
		"TOKEN=$(curl -s '%s/token?member=5')",
		`curl -i -H "Authorization: Bearer $TOKEN" %s/hello   # a bucket of member 5's own`,
		"curl -i %s/healthz                # never limited",
	} {
		fmt.Fprintf(out, "  "+line+"\n", base)
	}
	return serve(ctx, &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}, listener)
}

// reachable returns an address to try with curl, even if addr means all addresses of the machine.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return addr.String()
}

// describeAdmin says where the page is that shows the limits. It answers requests of this machine only, which come to a
// loopback address.
func describeAdmin(addr net.Addr, base string) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && !tcp.IP.IsUnspecified() {
		return "not shown: it answers this machine only, so -addr must be a loopback address"
	}
	return base + "/admin/   who is limited, and how close the others are (for this machine only)"
}

// serve serves until ctx ends, and then finishes the requests that have begun.
func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	}
}

func describeTrust(trusted []netip.Prefix) string {
	if len(trusted) == 0 {
		return "that of the TCP peer"
	}
	return fmt.Sprintf("from X-Forwarded-For of peers in %v", trusted)
}
