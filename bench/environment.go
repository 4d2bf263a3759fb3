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

// environment describes the machine and the versions.
func environment(ctx context.Context) string {
	return fmt.Sprintf("%s, %d cores in use, %s %s/%s, %s", cpu(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH, serverVersion(ctx))
}

// cpu returns the model of the processor, if the system has a file with it.
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

// serverVersion starts a server and returns its version.
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

// serverName returns the name and version of a server from its INFO. Servers other than Redis also report the version
// of Redis that they are compatible with.
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
	if strings.HasPrefix(filepath.Base(facts["executable"]), "keydb") { // it reports its own version as that of Redis
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
