package lua_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// program is an interpreter of the Lua of Dragonfly and Garnet, where integers are apart from doubles. Other servers run
// Lua 5.1, which the tests on a real one are about.
const program = "lua5.4"

// An interpreter is a server of testdata/server.lua.
type interpreter struct {
	t   *testing.T
	in  *bufio.Writer // requests
	out *bufio.Reader // answers
}

// startInterpreter runs scripts in an interpreter until the test ends.
func startInterpreter(t *testing.T, scripts ...string) *interpreter {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		redistest.Missing(t, program, program)
	}
	args := []string{filepath.Join("testdata", "server.lua")}
	for i, script := range scripts {
		file := filepath.Join(t.TempDir(), fmt.Sprint("script", i, ".lua"))
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", program, err)
		}
	})
	return &interpreter{t: t, in: bufio.NewWriter(in), out: bufio.NewReader(out)}
}

// ask sends a request, and returns the answer.
func (s *interpreter) ask(request ...any) []string {
	s.t.Helper()
	fmt.Fprintln(s.in, len(request))
	for _, line := range request {
		if yes, ok := line.(bool); ok { // as a client sends it
			line = "0"
			if yes {
				line = "1"
			}
		}
		fmt.Fprintln(s.in, line)
	}
	if err := s.in.Flush(); err != nil {
		s.t.Fatal(err)
	}
	count, err := strconv.Atoi(s.line())
	if err != nil {
		s.t.Fatal(err)
	}
	answer := make([]string, count)
	for i := range answer {
		answer[i] = s.line()
	}
	return answer
}

func (s *interpreter) line() string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil && !(errors.Is(err, io.EOF) && line != "") {
		s.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (s *interpreter) use(script int)            { s.ask("use", script+1) }
func (s *interpreter) flush()                    { s.ask("flush") }
func (s *interpreter) del(key string)            { s.ask("del", key) }
func (s *interpreter) set(key string, value any) { s.ask("set", key, value) }
func (s *interpreter) hset(key string, fields ...any) {
	s.ask(append([]any{"hset", key}, fields...)...)
}

func (s *interpreter) hash(key string) map[string]string {
	answer, hash := s.ask("hgetall", key), make(map[string]string)
	for i := 0; i < len(answer); i += 2 {
		hash[answer[i]] = answer[i+1]
	}
	return hash
}

func (s *interpreter) run(keys []string, args []any) (reply []int64, err error) {
	s.t.Helper()
	request := []any{"run", len(keys)}
	for _, key := range keys {
		request = append(request, key)
	}
	answer := s.ask(append(request, args...)...)
	if len(answer) == 2 && answer[0] == "error" {
		return nil, errors.New(answer[1])
	}
	if len(answer) == 2 && answer[0] == "nil" {
		return nil, redis.Nil
	}
	for _, text := range answer {
		// An error, too, of what is not an integer: Dragonfly would send it as text.
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		reply = append(reply, n)
	}
	return reply, nil
}

// The script answers in Lua 5.4 as internal/bucket says, and as in Redis.
func TestABatchIsAnsweredAlikeInLua54(t *testing.T) {
	testBatches(t, startInterpreter(t, movableAll(t)...), uint64(testsize.Of(2, 4)))
}

func TestCallsByThemselvesAreAnsweredAlikeInLua54(t *testing.T) {
	testAlone(t, startInterpreter(t, movableAll(t)...), uint64(testsize.Of(1, 4)))
}

func TestRescaleIsExactInLua54(t *testing.T) {
	testRescale(t, startInterpreter(t, lua.Take))
}

// Products beyond 2^63 are those of doubles, also where Lua has integers.
func TestNothingWrapsInLua54(t *testing.T) {
	l := bucket.Limit{Unit: 1, Refill: 1, Capacity: bucket.MaxCredits}
	const now int64 = 1_780_000_000_000_000
	s := startInterpreter(t, lua.Take)
	for _, need := range []int64{bucket.MaxCredits, bucket.Reset, 2 * bucket.MaxCredits} {
		s.flush()
		calls := []call{{4096, []charge{{"k", term{limit: l, need: need, debt: bucket.AnyDebt}}}}}
		keys, args := arguments(now, calls)
		got, err := s.run(keys, args)
		if want := newModel(false).run(calls, now); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("need %d: %v, %v, want %v", need, got, err, want)
		}
	}
}
