//go:build long

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A version that no release has, so that nothing but the copy below can provide it.
const consumed = "v1.999.999"

const root = "github.com/go-tokenbucket/ratelimit"

// TestConsumer releases a copy of the last commit, and uses it as programs of others do: from outside of the repository,
// with go get, go install and go mod tidy. Go finds the copy with git, under the path of the modules.
func TestConsumer(t *testing.T) {
	c := newConsumer(t)
	t.Run("root", c.testRoot)
	for _, m := range c.modules {
		t.Run(m.path, func(t *testing.T) { c.testExample(t, m) })
	}
	t.Run("any order", c.testAnyOrder)
	t.Run("tidy", c.testTidy)
	t.Run("command", c.testCommand)
	t.Run("released sums", c.testReleasedSums)
}

type consumer struct {
	copy    string
	modules []module // the published ones except for the root
	env     []string
}

func newConsumer(t *testing.T) *consumer {
	here, err := openRepository(".")
	if err != nil {
		t.Fatal(err)
	}
	defer here.close()
	c := &consumer{copy: clone(t, here.dir)}
	write(t, filepath.Join(c.copy, changelogFile), "## [Unreleased]\n\nA copy.\n")
	commit(t, c.copy)
	made, err := release(c.copy, consumed, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("released: %s", strings.Join(made.tags, " "))

	released, err := openRepository(c.copy)
	if err != nil {
		t.Fatal(err)
	}
	defer released.close()
	all, err := released.modules(consumed)
	if err != nil {
		t.Fatal(err)
	}
	c.modules = slices.DeleteFunc(all, func(m module) bool { return m.path == root || !m.published() })
	c.env = append(os.Environ(),
		// A cache of its own: the released version must not stay in that of the user. Others' modules come from there.
		"GOMODCACHE="+filepath.Join(t.TempDir(), "mod"),
		"GOPROXY=file://"+filepath.ToSlash(goEnv(t, "GOMODCACHE"))+"/cache/download,"+goEnv(t, "GOPROXY"),
		"GONOPROXY="+path.Dir(root), "GONOSUMDB="+path.Dir(root),
		"GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "GOBIN="+t.TempDir(),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+c.copy+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+root,
	)
	return c
}

// testRoot runs the two programs of README.
func (c *consumer) testRoot(t *testing.T) {
	readme := read(t, filepath.Join(c.copy, "README.md"))
	addr := freeAddr(t)
	inMemory := replaced(t, codeOf(t, readme, "package main\n"), `":8080"`, fmt.Sprintf("%q", addr))
	redis := freeAddr(t)
	buckets := replaced(t, codeOf(t, readme, "options, err := redisstore.Options("), "redis://localhost:6379", "redis://"+redis)
	inRedis := replaced(t, inMemory, "\tlimiter, err := ratelimit.New(", buckets+"\tlimiter, err := ratelimit.New(")
	inRedis = replaced(t, inRedis, "import (\n", `import (
	"github.com/redis/go-redis/v9"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
`)
	t.Run("memory", func(t *testing.T) { c.testReadme(t, inMemory, addr) })
	t.Run("redis", func(t *testing.T) {
		host, port, _ := net.SplitHostPort(redis)
		c.start(t, "redis-server", "--bind", host, "--port", port, "--save", "")
		waitFor(t, redis)
		c.testReadme(t, inRedis, addr)
		if keys := c.run(t, t.TempDir(), "redis-cli", "-p", port, "keys", "*"); !strings.Contains(keys, "127.0.0.1") {
			t.Errorf("Redis has the keys %q, want one of this client", keys)
		}
	})
}

func (c *consumer) testReadme(t *testing.T, program, addr string) {
	dir := c.empty(t)
	c.run(t, dir, "go", "get", root+"@"+consumed)
	c.start(t, c.build(t, dir, program))
	waitFor(t, addr)
	wantDenial(t, "http://"+addr+"/", "", "")
}

// testExample gets a module alone, and runs its example.
func (c *consumer) testExample(t *testing.T, m module) {
	if !strings.HasPrefix(m.dir, "contrib/") {
		c.run(t, c.empty(t), "go", "install", m.path+"@"+m.version)
		return
	}
	dir := c.empty(t)
	c.run(t, dir, "go", "get", m.path+"@"+m.version)
	if got := c.run(t, dir, "go", "list", "-m", "-f", "{{.Version}}", root); got != consumed {
		t.Errorf("it requires %s of the root, want %s", got, consumed)
	}
	source := c.run(t, dir, "go", "list", "-m", "-f", "{{.Dir}}", m.path)
	program := c.build(t, dir, read(t, filepath.Join(source, "example", "main.go")))
	addr := freeAddr(t)
	c.start(t, program, "-addr", addr)
	waitFor(t, addr)
	switch url := "http://" + addr; m.dir {
	case "contrib/grpcratelimit":
		if got := strings.Count(c.run(t, dir, program, "-call", addr), "SERVING"); got != 8 {
			t.Errorf("%d of 8 calls were served in the end", got)
		}
	case "contrib/connectratelimit":
		wantDenial(t, url+"/acme.v1.Greeter/Hello", "application/json", `"gopher"`)
	case "contrib/fiberratelimit", "contrib/ginratelimit":
		wantDenial(t, url+"/login", "application/x-www-form-urlencoded", "password=wrong")
	case "contrib/echoratelimit", "contrib/echoratelimit/v5":
		wantDenial(t, url+"/hello", "", "")
	case "contrib/otelratelimit", "contrib/promratelimit":
		wantDenial(t, url+"/items/5", "", "")
	default:
		t.Errorf("say here how the example of %s is tried", m.dir)
	}
}

// testAnyOrder gets all modules for one program.
func (c *consumer) testAnyOrder(t *testing.T) {
	for range 2 {
		slices.Reverse(c.modules)
		dir := c.empty(t)
		for _, m := range c.modules {
			c.run(t, dir, "go", "get", m.path+"@"+m.version)
		}
		if got := c.run(t, dir, "go", "list", "-m", "-f", "{{.Version}}", root); got != consumed {
			t.Errorf("the root has version %s, want %s", got, consumed)
		}
	}
}

// testTidy builds a program that uses three modules, and has no go.mod yet that requires them.
func (c *consumer) testTidy(t *testing.T) {
	dir := c.empty(t)
	c.build(t, dir, `package main

import (
	"`+root+`"
	"`+root+`/contrib/echoratelimit/v5"
	"`+root+`/contrib/ginratelimit"
	"`+root+`/contrib/promratelimit"
)

func main() {
	metrics := promratelimit.New(promratelimit.Config{})
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Observe: metrics.Observe}))
	_, _ = echoratelimit.New(limiter, echoratelimit.Config{}), ginratelimit.New(limiter, ginratelimit.Config{})
}
`)
	all := strings.Split(c.run(t, dir, "go", "list", "-m", "all"), "\n")
	for _, want := range []string{
		root + " v1.999.999",
		root + "/contrib/echoratelimit/v5 v5.999.999",
		root + "/contrib/ginratelimit v1.999.999",
		root + "/contrib/promratelimit v1.999.999",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("it did not get %s, but\n%s", want, strings.Join(all, "\n"))
		}
	}
}

func (c *consumer) testCommand(t *testing.T) {
	dir := c.empty(t)
	c.run(t, dir, "go", "install", root+"/cmd/ratelimit@"+consumed)
	write(t, filepath.Join(dir, "limits.yaml"), "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 1/1m\n")
	write(t, filepath.Join(dir, "access.log"), strings.Repeat(`192.0.2.1 - - [23/May/2026:14:00:00 +0000] "GET / HTTP/1.1" 200 5`+"\n", 3))
	command := filepath.Join(c.value("GOBIN"), "ratelimit")
	if out := c.run(t, dir, command, "simulate", "-policies", "limits.yaml", "access.log"); !strings.Contains(out, "Denies 2 of 3 requests") {
		t.Errorf("it printed:\n%s", out)
	}
}

// testReleasedSums checks that go.mod and go.sum of each module are those that Go makes of the released versions.
func (c *consumer) testReleasedSums(t *testing.T) {
	git(t, c.copy, "checkout", "--quiet", consumed)
	for _, m := range c.modules {
		dir := filepath.Join(c.copy, filepath.FromSlash(m.dir))
		c.run(t, dir, "go", "mod", "tidy", "-diff")
		c.run(t, dir, "go", "vet", "./...")
	}
}

// empty returns an empty folder with a module of its own.
func (c *consumer) empty(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	c.run(t, dir, "go", "mod", "init", "example.com/consumer")
	return dir
}

// build builds and vets source in dir, and returns the program.
func (c *consumer) build(t *testing.T, dir, source string) string {
	t.Helper()
	write(t, filepath.Join(dir, "main.go"), source)
	c.run(t, dir, "go", "mod", "tidy")
	c.run(t, dir, "go", "vet", ".")
	program := filepath.Join(t.TempDir(), "program")
	c.run(t, dir, "go", "build", "-o", program, ".")
	return program
}

// run returns what a command prints, without white space at its ends.
func (c *consumer) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := c.command(dir, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	t.Logf("%s %s", filepath.Base(name), strings.Join(args, " "))
	return strings.TrimSpace(string(out))
}

// start starts a program that serves until the test ends.
func (c *consumer) start(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := c.command(t.TempDir(), name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s", filepath.Base(name), strings.Join(args, " "))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

func (c *consumer) command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(slices.Clone(c.env), "PWD="+dir)
	return cmd
}

// value returns the value of an environment variable.
func (c *consumer) value(name string) string {
	for _, v := range slices.Backward(c.env) {
		if value, found := strings.CutPrefix(v, name+"="); found {
			return value
		}
	}
	return ""
}

// wantDenial sends the same request until it is denied.
func wantDenial(t *testing.T, url, contentType, body string) {
	t.Helper()
	for n := range 20 {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		switch res.StatusCode {
		case http.StatusOK, http.StatusUnauthorized:
		case http.StatusTooManyRequests:
			if n == 0 || res.Header.Get("Retry-After") == "" {
				t.Errorf("request %d: 429, with the headers %v", n+1, res.Header)
			}
			return
		default:
			t.Fatalf("request %d: status %d", n+1, res.StatusCode)
		}
	}
	t.Error("20 requests: none was denied")
}

// waitFor waits until a server listens on addr.
func waitFor(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// freeAddr returns an address on which nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// codeOf returns the first block of Go code in a text that begins with begin.
func codeOf(t *testing.T, text, begin string) string {
	t.Helper()
	_, code, found := strings.Cut(text, "```go\n"+begin)
	if !found {
		t.Fatalf("no code begins with %q", begin)
	}
	code, _, _ = strings.Cut(code, "```")
	return begin + code
}

func replaced(t *testing.T, text, old, by string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q is %d times in:\n%s", old, strings.Count(text, old), text)
	}
	return strings.Replace(text, old, by, 1)
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
