package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// environment says on what the figures were measured.
func environment(ctx context.Context) string {
	return fmt.Sprintf("%s, %d cores in use, %s %s/%s, %s", cpu(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH, serverVersion(ctx))
}

// cpu returns the model of the processor where the system tells it in a file.
func cpu() string {
	const unknown = "A processor of unknown model"
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, model, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return unknown
}

// serverVersion starts a server to ask it what it is.
func serverVersion(ctx context.Context) string {
	s, err := startRedis(ctx)
	if err != nil {
		return "no Redis"
	}
	defer s.stop()
	info, err := s.control.Info(ctx, "server").Result()
	if err != nil {
		return "Redis of unknown version"
	}
	return serverName(info)
}

// serverName returns the name and version that a server tells by INFO. Others than Redis also tell the version of
// Redis that they are compatible with.
func serverName(info string) string {
	facts := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	for _, server := range [...]struct{ name, field string }{
		{"Valkey", "valkey_version"},
		{"Dragonfly", "dragonfly_version"},
		{"Garnet", "garnet_version"},
	} {
		if version := facts[server.field]; version != "" {
			return server.name + " " + strings.TrimPrefix(version, "df-v")
		}
	}
	name, version := cmp.Or(facts["server_name"], "Redis"), cmp.Or(facts["redis_version"], "of unknown version")
	if strings.HasPrefix(filepath.Base(facts["executable"]), "keydb") { // which tells its own version as that of Redis
		name = "KeyDB"
	}
	return name + " " + version
}

// version returns name with the version of module that this program was built with.
func version(name, module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return name + " " + m.Version
		}
	}
	return name
}
