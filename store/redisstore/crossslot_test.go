package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A crossings is a hook that counts the script calls that it sees, by the name of the script. It may answer them in
// place of the server.
type crossings struct {
	answer answering

	mu   sync.Mutex
	seen map[string]int
}

type answering func(script string, cmd redis.Cmder) (answered bool, err error)

func (x *crossings) DialHook(next redis.DialHook) redis.DialHook { return next }

func (x *crossings) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if answered, err := x.see(cmd); answered {
			return err
		}
		return next(ctx, cmd)
	}
}

func (x *crossings) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var sent []redis.Cmder
		for _, cmd := range cmds {
			if answered, err := x.see(cmd); answered {
				cmd.SetErr(err)
			} else {
				sent = append(sent, cmd)
			}
		}
		return next(ctx, sent)
	}
}

func (x *crossings) see(cmd redis.Cmder) (answered bool, err error) {
	script := "other"
	switch name := cmd.Name(); {
	case name != "evalsha" && name != "eval":
		return false, nil
	case slices.Contains([]any{lua.TakeAcrossSHA1, lua.TakeAcross}, cmd.Args()[1]):
		script = "across"
	case slices.Contains([]any{lua.TakeSHA1, lua.Take}, cmd.Args()[1]):
		script = "take"
	case slices.Contains([]any{lua.TakeOneSHA1, lua.TakeOne, lua.TakeQuotaSHA1, lua.TakeQuota, lua.TakeFewSHA1, lua.TakeFew}, cmd.Args()[1]):
		script = "alone"
	case cmd.Args()[1] == lua.Reach:
		script = "reach"
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen == nil {
		x.seen = make(map[string]int)
	}
	x.seen[script]++
	if x.answer == nil {
		return false, nil
	}
	return x.answer(script, cmd)
}

// forget returns what was seen, and begins anew.
func (x *crossings) forget() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	seen := x.seen
	x.seen = nil
	return seen
}

// allowsCrossing reports whether the server of the tests is one that takes keys of several slots in one script.
func allowsCrossing(t *testing.T, cluster *redistest.Cluster) bool {
	t.Helper()
	err := dial(t, cluster.Addrs()[0]).Eval(t.Context(), lua.Reach, nil, "a", "b").Err()
	if err != nil {
		t.Logf("this server does not take scripts with a flag: %v", err)
	}
	return err == nil
}

// crossable returns cluster, or skips a test of scripts across slots on servers that do not take them.
func crossable(t *testing.T, cluster *redistest.Cluster) *redistest.Cluster {
	if !allowsCrossing(t, cluster) {
		t.SkipNow()
	}
	return cluster
}

// crossing opens a Store on cluster whose calls are seen, and may be answered in place of the server.
func crossing(t *testing.T, cluster *redistest.Cluster, cfg redisstore.Config, answer answering) (*redisstore.Store, *crossings) {
	client, x := cluster.Client(), &crossings{answer: answer}
	client.AddHook(x)
	s := ratelimit.Must(redisstore.New(client, cfg))
	t.Cleanup(func() { s.Close() })
	take(t, s, charge(t, "first")) // from then on the masters are known
	x.forget()
	return s, x
}

// sameMaster returns charges of n keys in different slots of master i.
func sameMaster(t *testing.T, cluster *redistest.Cluster, i, n int) (charges []store.Charge) {
	t.Helper()
	slots := make(map[int]bool)
	for k := 0; len(charges) < n; k++ {
		c := charge(t, fmt.Sprint("m", k))
		if slot := cluster.Slot(c.Key); !slots[slot] && (len(cluster.Nodes) == 1 || cluster.Owner(slot) == i) {
			slots[slot] = true
			charges = append(charges, c)
		}
	}
	return charges
}

// crowd makes calls of all charges at once, one each, several times over.
func crowd(t *testing.T, s store.Store, rounds int, charges []store.Charge) {
	t.Helper()
	var wg sync.WaitGroup
	for range rounds {
		for _, c := range charges {
			wg.Go(func() {
				if ok, err := tryFor(patient, s, c); !ok || err != nil {
					t.Errorf("%s: ok %t, error %v", c.Key, ok, err)
				}
			})
		}
	}
	wg.Wait()
}

// askedAll makes calls of n keys on each master until reached returns true for how many of these were found to take keys of
// several slots, and how many not to. It returns the charges, and how often each was made.
func askedAll(t *testing.T, cluster *redistest.Cluster, s *redisstore.Store, n int, reached func(yes, no int) bool) (all []store.Charge, rounds int64) {
	t.Helper()
	for i := range cluster.Nodes {
		all = append(all, sameMaster(t, cluster, i, n)...)
	}
	for !reached(redisstore.Crossings(s)) {
		crowd(t, s, 1, all)
		if rounds++; rounds > 90 {
			yes, no := redisstore.Crossings(s)
			t.Fatalf("%d masters were found to allow it, and %d not to", yes, no)
		}
	}
	return all, rounds
}

// A Store finds out which masters take keys of several slots, and sends them one script call for a batch from then on.
func TestMastersThatAllowItAreSentKeysOfSeveralSlotsInOneScript(t *testing.T) {
	cluster := crossable(t, redistest.SharedCluster(t, 3))
	var log bytes.Buffer
	s, x := crossing(t, cluster, redisstore.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxInFlight: 1}, nil)
	all, rounds := askedAll(t, cluster, s, 20, func(yes, _ int) bool { return yes == 3 })
	if seen := x.forget(); seen["reach"] != 3 {
		t.Errorf("seen %v, want one question to each master", seen)
	}
	crowd(t, s, 1, all)
	rounds++
	seen := x.forget()
	if seen["across"] == 0 || seen["take"] > 0 || seen["reach"] > 0 || seen["across"]+seen["alone"] > len(all)/2 {
		t.Errorf("seen %v for %d keys", seen, len(all))
	}
	wantLeft(t, s, 100-rounds, all...)
	if log.Len() > 0 {
		t.Errorf("logged %q", log.String())
	}
}

func TestALoneCallOfOneSlotDeclaresItsKey(t *testing.T) {
	s, x := crossing(t, redistest.SharedCluster(t, 3), redisstore.Config{CrossSlot: redisstore.CrossSlotAlways}, nil)
	beside := charge(t, "k")
	beside.Policy = "beside"
	take(t, s, charge(t, "k"))
	takeAll(t, s, charge(t, "k"), beside)
	if seen := x.forget(); seen["across"] > 0 || seen["alone"] == 0 {
		t.Errorf("seen %v", seen)
	}
}

// A call over several slots of one master is one step: if one bucket refuses, the others are not written.
func TestACallOverSlotsOfOneMasterIsOneStep(t *testing.T) {
	cluster := crossable(t, redistest.SharedCluster(t, 3))
	s, x := crossing(t, cluster, redisstore.Config{CrossSlot: redisstore.CrossSlotAlways, MaxDenials: -1}, nil)
	charges := sameMaster(t, cluster, 1, 3)
	take(t, s, costs(charges[2], 100))
	x.forget()
	if ok, states := takeStates(t, s, charges...); ok || !states[0].Allowed || states[2].Allowed {
		t.Errorf("ok %t, %+v", ok, states)
	}
	for _, c := range charges[:2] {
		if n := cluster.Client().Exists(t.Context(), "ratelimit:{"+c.Key+"}:p").Val(); n != 0 {
			t.Errorf("%s was written", c.Key)
		}
	}
	takeAll(t, s, charges[:2]...)
	if seen := x.forget(); seen["across"] < 2 || len(seen) != 1 {
		t.Errorf("seen %v, want one script a call, and one that loads it", seen)
	}
	wantLeft(t, s, 99, charges[:2]...)
}

// Keys of slots that have moved, or are on the move, are begun anew with their keys declared, so that the client follows
// them: in batches, and in calls over several slots.
func TestKeysThatHaveLeftTheirMasterAreFollowed(t *testing.T) {
	t.Parallel()
	cluster := crossable(t, redistest.StartCluster(t, 3))
	charges := sameMaster(t, cluster, 0, 8)
	gone, going, shadow := charges[0], charges[1], charges[2]
	shadow.Shadow = true
	stay := charges[3:]
	other := sameMaster(t, cluster, 2, 1)[0]
	s, _ := crossing(t, cluster, redisstore.Config{CrossSlot: redisstore.CrossSlotAlways}, nil)
	crowd(t, s, 1, slices.Concat(charges, []store.Charge{other}))

	cluster.StartMigration(cluster.Slot(gone.Key), 1).Finish()
	for _, c := range []store.Charge{going, shadow} {
		m := cluster.StartMigration(cluster.Slot(c.Key), 1)
		if c.Key == shadow.Key { // its key has left, and the bucket of going has not
			for m.MoveKeys(10) > 0 {
			}
		}
		defer m.Finish()
	}
	fresh := going // a bucket that is not there yet, in a slot that is leaving
	fresh.Policy = "fresh"

	for n := range int64(3) {
		for _, call := range [][]store.Charge{
			{gone, stay[0], going, shadow},
			{fresh, stay[0], other, shadow}, // over two masters
			// The first key can only be read: Redis since 7.4 refuses to write it after it has read keys of other slots.
			{going, stay[0]},
		} {
			ok, states := takeStates(t, s, call...)
			if !ok {
				t.Fatalf("call %d is refused", n)
			}
			for i, state := range states {
				if state.Degraded {
					t.Errorf("call %d: charge %d was not answered", n, i)
				}
			}
		}
	}
	crowd(t, s, 1, slices.Concat([]store.Charge{gone, fresh, going}, stay))
	wantLeft(t, s, 100-1-9-1, stay[0])
	wantLeft(t, s, 100-1-3-1, gone)
	wantLeft(t, s, 100-3-1, fresh)
	wantLeft(t, s, 100-1-6-1, going)
	wantLeft(t, s, 100-1-6, charges[2])
	wantLeft(t, s, 100-1-3, other)
	wantLeft(t, s, 100-1-1, stay[1:]...)
}

// A server that does not know the flag says so before it runs a script: the calls are sent again slot by slot, each is
// charged once, and the log says it once, for all masters.
func TestAServerThatRefusesTheFlagIsSentSlotBySlot(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	for _, how := range []redisstore.CrossSlot{redisstore.CrossSlotAuto, redisstore.CrossSlotAlways} {
		for _, text := range []string{
			"ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",         // Redis 6.2, KeyDB
			"ERR Unexpected flag in script shebang: allow-cross-slot-keys",                                 // Redis 7 and Valkey, of other flags
			"ERR Error compiling script (new function): <string> line:1(column:1) near '#':   Invalid '#'", // miniredis
			"CROSSSLOT Keys in request don't hash to the same slot",
		} {
			t.Run(fmt.Sprint(how, " ", text), func(t *testing.T) {
				var log bytes.Buffer
				s, x := crossing(t, cluster, redisstore.Config{
					CrossSlot: how, Prefix: prefix(), Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxInFlight: 1,
				}, refusesFlag(text))
				all, rounds := askedAll(t, cluster, s, 10, func(_, no int) bool { return no == 3 })
				x.forget()
				crowd(t, s, 1, all)
				takeAll(t, s, all[:2]...)
				if seen := x.forget(); seen["across"] > 0 || seen["reach"] > 0 {
					t.Errorf("seen %v after the refusal", seen)
				}
				wantLeft(t, s, 100-rounds-2, all[:2]...)
				wantLeft(t, s, 100-rounds-1, all[2:]...)
				if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "slot") {
					t.Errorf("logged %q", log.String())
				}
			})
		}
	}
}

// refusesFlag answers scripts across slots by an error.
func refusesFlag(text string) answering {
	return func(script string, _ redis.Cmder) (bool, error) {
		return script == "across" || script == "reach", redisError(text)
	}
}

// The log line of the first master that refuses may take long. Calls of the other masters do not wait for it.
func TestASlowLogDelaysNoOtherMasterThatRefusesTheFlag(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	log := slowLog{make(chan struct{}), make(chan struct{})}
	s, _ := crossing(t, cluster, redisstore.Config{Prefix: prefix(), Logger: slog.New(slog.NewTextHandler(log, nil)), MaxInFlight: 1},
		refusesFlag("ERR Unexpected flag in script shebang: allow-cross-slot-keys"))
	var masters sync.WaitGroup
	served := make(chan bool, len(cluster.Nodes))
	for i := range cluster.Nodes {
		charges := sameMaster(t, cluster, i, 10)
		for j := range charges {
			charges[j].Cost = 0 // for as many rounds as it takes
		}
		masters.Go(func() {
			for no := 0; no < len(cluster.Nodes); _, no = redisstore.Crossings(s) {
				crowd(t, s, 1, charges)
			}
			crowd(t, s, 1, charges)
			served <- true
		})
	}
	<-log.begun
	for range len(cluster.Nodes) - 1 {
		select {
		case <-served:
		case <-time.After(patient / 2):
			t.Error("another master waits for the log")
		}
	}
	close(log.end)
	masters.Wait()
}

// A slowLog writes its only line until the test ends it.
type slowLog struct{ begun, end chan struct{} }

func (l slowLog) Write(line []byte) (int, error) {
	close(l.begun)
	<-l.end
	return len(line), nil
}

// A call that a bucket refuses is answered for all its buckets, also where those of another master have to be asked again
// slot by slot, and nothing is left taken.
func TestARefusedCallIsAnsweredForBucketsThatAreAskedSlotBySlot(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	for shadows := range 4 {
		s, _ := crossing(t, cluster, redisstore.Config{
			CrossSlot: redisstore.CrossSlotAlways, Prefix: prefix(), MaxDenials: -1, Logger: quiet,
		}, refusesFlag("ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'"))
		call := append(sameMaster(t, cluster, 0, 3), sameMaster(t, cluster, 1, 1)...)
		take(t, s, costs(call[3], 100))
		for i := range shadows {
			call[i].Shadow = true
		}
		ok, states := takeStates(t, s, call...)
		if ok {
			t.Errorf("%d shadows: it is allowed", shadows)
		}
		for i, state := range states[:3] {
			if state.Degraded || !state.Allowed || state.Remaining != 100 {
				t.Errorf("charge %d: %+v", i, state)
			}
		}
		wantLeft(t, s, 100, call[:3]...)
	}
}

// Errors that pass, and answers while slots move, do not decide whether a master takes keys of several slots.
func TestWhatSaysNothingOfScriptsDecidesNothing(t *testing.T) {
	cluster := crossable(t, redistest.SharedCluster(t, 3))
	charges := sameMaster(t, cluster, 0, 2)
	reply := func(foreign int64) func(redis.Cmder) error {
		return func(cmd redis.Cmder) error {
			reply := slices.Repeat([]int64{1}, len(cmd.Args())-3)
			reply[len(reply)-1] = foreign
			cmd.(interface{ SetVal([]int64) }).SetVal(reply)
			return nil
		}
	}
	fails := func(err error) func(redis.Cmder) error { return func(redis.Cmder) error { return err } }
	for name, tt := range map[string]struct {
		answer  func(redis.Cmder) error
		yes, no int // after so many questions
	}{
		"a lost connection":        {fails(errors.New("connection reset")), 0, 0},
		"a server that starts":     {fails(redisError("LOADING Redis is loading the dataset in memory")), 0, 0},
		"a cluster that is down":   {fails(redisError("CLUSTERDOWN The cluster is down")), 0, 0},
		"keys of another":          {reply(1), 0, 1}, // the tenth time
		"no other keys":            {reply(0), 1, 0},
		"a user without eval":      {fails(redisError("NOPERM User limiter has no permissions to run the 'eval' command")), 0, 1},
		"a reply of another shape": {func(cmd redis.Cmder) error { return nil }, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			questions := 0
			s, _ := crossing(t, cluster, redisstore.Config{Prefix: prefix(), Logger: quiet}, func(script string, cmd redis.Cmder) (bool, error) {
				if script != "reach" {
					return false, nil
				}
				questions++
				return true, tt.answer(cmd)
			})
			takeAll(t, s, charges...)
			takeAll(t, s, charges...)
			if questions != 1 {
				t.Errorf("%d questions at once, want 1", questions)
			}
			if yes, no := redisstore.Crossings(s); yes != tt.yes || name != "keys of another" && name != "a reply of another shape" && no != tt.no {
				t.Errorf("%d masters were found to allow it, %d not to", yes, no)
			}
			for range 10 {
				redisstore.AskAgain(s)
				takeAll(t, s, charges...)
			}
			if yes, no := redisstore.Crossings(s); yes != tt.yes || no != tt.no {
				t.Errorf("in the end, %d masters were found to allow it, %d not to", yes, no)
			}
			wantLeft(t, s, 100-12, charges...)
		})
	}
}

// A server that has no memory left runs no script across slots, and still denies what is to be denied.
func TestCallsAreDeniedAcrossSlotsByAServerWithoutMemory(t *testing.T) {
	cluster := crossable(t, redistest.SharedCluster(t, 1))
	s, x := crossing(t, cluster, redisstore.Config{CrossSlot: redisstore.CrossSlotAlways, MaxDenials: -1}, nil)
	charges := sameMaster(t, cluster, 0, 2)
	for _, c := range charges {
		take(t, s, costs(c, 100))
	}
	cluster.Nodes[0].Do("CONFIG", "SET", "maxmemory", "1")
	defer cluster.Nodes[0].Do("CONFIG", "SET", "maxmemory", "0")
	x.forget()
	wantRefused(t, s, charges...)
	if seen := x.forget(); seen["across"] == 0 {
		t.Errorf("seen %v", seen)
	}
	other := sameMaster(t, cluster, 0, 4)[2:]
	ok, err := tryFor(patient, s, other...)
	wantRedisError(t, ok, err, "OOM")
}

// A script that fails after it has charged a bucket is not sent again.
func TestAScriptAcrossSlotsThatWasPartlyRunIsNotSentAgain(t *testing.T) {
	cluster := crossable(t, redistest.SharedCluster(t, 1))
	permit(cluster.Nodes[0], append(guideACL(t), "+cluster")...)
	defer cluster.Nodes[0].Do("ACL", "DELUSER", "limiter")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "limiter", Password: "secret"})
	defer client.Close()
	var x crossings
	client.AddHook(&x)
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{CrossSlot: redisstore.CrossSlotAlways, MaxDenials: -1}))
	charges := sameMaster(t, cluster, 0, 3)
	take(t, s, charges[2])
	cluster.Nodes[0].Do("ACL", "SETUSER", "limiter", "-pexpire")
	x.forget()
	if ok, err := tryFor(patient, s, charges[:2]...); ok || !notPermitted(err) {
		t.Errorf("ok %t, error %v, want one of the ACL", ok, err)
	}
	if seen := x.forget(); seen["across"] != 2 || len(seen) != 1 { // EVALSHA, and EVAL, as it was not known
		t.Errorf("seen %v", seen)
	}
	admin := ratelimit.Must(redisstore.New(cluster.Client(), redisstore.Config{}))
	wantLeft(t, admin, 99, charges[0])  // charged by HSET, and given no TTL
	wantLeft(t, admin, 100, charges[1]) // of the same call, not reached
}

func TestTheACLOfTheGuideIsEnoughAcrossSlots(t *testing.T) {
	cluster := crossable(t, redistest.SharedCluster(t, 1))
	permit(cluster.Nodes[0], append(guideACL(t), "+cluster")...) // which the client needs to find the masters
	defer cluster.Nodes[0].Do("ACL", "DELUSER", "limiter")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "limiter", Password: "secret"})
	defer client.Close()
	var x crossings
	client.AddHook(&x)
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	charges := sameMaster(t, cluster, 0, 2)
	take(t, s, charges[0])
	for range 3 {
		takeAll(t, s, charges...)
	}
	if seen := x.forget(); seen["reach"] != 1 || seen["across"] == 0 {
		t.Errorf("seen %v", seen)
	}
	wantLeft(t, s, 96, charges[0])
	wantLeft(t, s, 97, charges[1])
}

// miniredis takes no script with a flag, and answers CLUSTER SLOTS for itself.
func TestAClusterClientOnMiniredisWorks(t *testing.T) {
	for _, how := range []redisstore.CrossSlot{redisstore.CrossSlotAuto, redisstore.CrossSlotAlways, redisstore.CrossSlotNever} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			var log bytes.Buffer
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{miniredis.RunT(t).Addr()}})
			defer client.Close()
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{CrossSlot: how, Logger: slog.New(slog.NewTextHandler(&log, nil))}))
			charges := []store.Charge{charge(t, "a"), charge(t, "b"), charge(t, "c")}
			take(t, s, charges[0])
			for range 5 {
				takeAll(t, s, charges...)
			}
			crowd(t, s, 2, charges)
			wantLeft(t, s, 92, charges[0])
			wantLeft(t, s, 93, charges[1:]...)
			want := 1
			if how == redisstore.CrossSlotNever {
				want = 0
			}
			if n := strings.Count(log.String(), "\n"); n != want {
				t.Errorf("logged %q, want %d lines", log.String(), want)
			}
		})
	}
}

// What panics before a question is made ends neither the process nor the question.
func TestAClockThatPanicsEndsNoQuestion(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	var panics atomic.Bool
	s, _ := crossing(t, cluster, redisstore.Config{MaxDenials: -1, Logger: quiet, Clock: func() time.Time {
		if panics.Load() {
			panic("a clock")
		}
		return time.Now()
	}}, nil)
	charges := sameMaster(t, cluster, 0, 2)
	panics.Store(true)
	if ok, err := tryFor(patient, s, charges...); ok || err == nil || !strings.Contains(err.Error(), "a clock") {
		t.Errorf("ok %t, error %v, want the panic", ok, err)
	}
	panics.Store(false)
	redisstore.AskAgain(s)
	for range 2 {
		takeAll(t, s, charges...)
	}
	if yes, _ := redisstore.Crossings(s); yes != 1 && allowsCrossing(t, cluster) {
		t.Errorf("%d masters were found to allow it, want 1", yes)
	}
}

// A reply that is lost may be of a script that charged: it is not sent again in any form.
func TestALostReplyAcrossSlotsChargesOnce(t *testing.T) {
	cluster := crossable(t, redistest.SharedCluster(t, 3))
	s, x := crossing(t, cluster, redisstore.Config{CrossSlot: redisstore.CrossSlotAlways}, nil)
	charges := sameMaster(t, cluster, 0, 2)
	takeAll(t, s, charges...)
	x.forget()
	client := cluster.Client()
	x.answer = func(script string, cmd redis.Cmder) (bool, error) {
		if script != "across" {
			return false, nil
		}
		_ = client.Process(t.Context(), cmd)
		return true, errors.New("connection reset")
	}
	if ok, err := tryFor(patient, s, charges...); ok || err == nil {
		t.Errorf("ok %t, error %v, want that of the connection", ok, err)
	}
	if seen := x.forget(); seen["across"] != 1 || len(seen) != 1 {
		t.Errorf("seen %v", seen)
	}
	x.answer = nil
	wantLeft(t, s, 98, charges...)
}
