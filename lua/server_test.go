package lua_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
)

// A server runs scripts on keys that a test can look at.
type server interface {
	use(script int) // has run run that one of those that the server was started with; at first it is the first
	flush()
	set(key string, value any)
	hset(key string, fields ...any)
	del(key string)
	hash(key string) map[string]string
	run(keys []string, args []any) ([]int64, error)
}

// A redisServer is a server that is one.
type redisServer struct {
	t       *testing.T
	client  *redis.Client
	script  *redis.Script
	scripts []*redis.Script
}

func startServer(t *testing.T, scripts ...string) *redisServer {
	t.Helper()
	s := &redisServer{t: t, client: redistest.Start(t).Client()}
	for _, script := range scripts {
		s.scripts = append(s.scripts, redis.NewScript(script))
	}
	s.use(0)
	return s
}

func (s *redisServer) use(script int) { s.script = s.scripts[script] }

func (s *redisServer) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *redisServer) flush() { s.check(s.client.FlushDB(s.t.Context()).Err()) }

func (s *redisServer) set(key string, value any) {
	s.check(s.client.Set(s.t.Context(), key, value, 0).Err())
}

func (s *redisServer) hset(key string, fields ...any) {
	s.check(s.client.HSet(s.t.Context(), key, fields...).Err())
}

func (s *redisServer) del(key string) { s.check(s.client.Del(s.t.Context(), key).Err()) }

func (s *redisServer) hash(key string) map[string]string {
	hash, err := s.client.HGetAll(s.t.Context(), key).Result()
	s.check(err)
	return hash
}

func (s *redisServer) run(keys []string, args []any) ([]int64, error) {
	cmd := s.script.Run(s.t.Context(), s.client, keys, args...)
	if one, ok := cmd.Val().(int64); ok {
		return []int64{one}, cmd.Err()
	}
	return cmd.Int64Slice()
}
