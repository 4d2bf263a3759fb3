package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// environment says on what the figures were measured.
func environment(ctx context.Context) string {
	return fmt.Sprintf("%s, %d cores in use, %s %s/%s, %s", cpu(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH, redisVersion(ctx))
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

func redisVersion(ctx context.Context) string {
	// "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=…"
	output, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return "no Redis"
	}
	for field := range strings.FieldsSeq(string(output)) {
		if version, ok := strings.CutPrefix(field, "v="); ok {
			return "Redis " + version
		}
	}
	return "Redis of unknown version"
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
