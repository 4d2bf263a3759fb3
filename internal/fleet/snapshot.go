// Package fleet shares what each replica has counted with all others. Each replica publishes a [Snapshot] of itself every
// two seconds, as one value of a set in the Store. Whoever shows the fleet reads all of them.
//
// Anybody who can write to Redis can write snapshots. So [Decode] checks all that it reads. Programs that share a Redis and a
// prefix share their buckets, and so they are one fleet here, too: give a program its own prefix to separate it.
package fleet

import (
	"encoding/json"
	"math"
	"time"
	"unicode/utf8"
)

const (
	// Every is how often a replica publishes. After [SilentAfter] without a value it is silent, and after [GoneAfter] it is
	// gone.
	Every       = 2 * time.Second
	SilentAfter = 6 * time.Second
	GoneAfter   = time.Minute

	// MaxReplicas is how many replicas a [Fleet] has.
	MaxReplicas = 256

	// format is the version of the text. It grows when an older release would misread a newer text. Fields that are only
	// new do not change it.
	format = 1

	setName = "replicas"
)

// A Snapshot is what a replica has counted, and how it is. Its times are those of the replica that has it: see
// [Reader.Fleet]. The zero value of a field is left out of the text.
type Snapshot struct {
	Format  int       `json:"format"`
	Replica string    `json:"-"` // the name of the value
	Host    string    `json:"host,omitempty"`
	Release string    `json:"release,omitempty"` // of the program
	Built   time.Time `json:"built,omitzero"`    // when the release was committed
	Started time.Time `json:"started,omitzero"`
	At      time.Time `json:"at,omitzero"` // when the snapshot was taken

	Store     Store     `json:"store"`
	Overrides Overrides `json:"overrides,omitzero"`

	Traffic    map[string]int64 `json:"traffic,omitempty"`    // decisions by outcome, as in observe.DecisionCounts
	Operations map[string]int64 `json:"operations,omitempty"` // as in observe.OperationCounts

	// Last are the requests of about the last 10 s, whatever their policies. Degraded are those that went on without a decision.
	Last    Counts    `json:"last,omitzero"`
	History Histories `json:"history,omitzero"` // of requests, whatever their policies

	// Engine has counts and levels of the store, by these names:
	//	waiting, max_waiting
	//	Redis     calls, batches, charges, merged, direct, redirects, script_loads, queued, in_flight,
	//	          failed, and failed_timeout and so on for each kind of error
	//	fallback  probes, answered, charged, pending
	//	denials   denials_answered, denials_kept
	//	leases    leases, leased_tokens
	//	memory    buckets, blocked, evicted
	Engine map[string]int64 `json:"engine,omitempty"`

	Policies []Policy `json:"policies,omitempty"`

	Keys     []Key    `json:"keys,omitempty"`     // those with the most requests and denials of all policies
	KeySteps Steps    `json:"key_steps,omitzero"` // of Key.Requests and Key.Denials
	Blocks   []Block  `json:"blocks,omitempty"`   // blocks and locks that the replica has met
	Limited  string   `json:"limited,omitempty"`  // the keys that were denied lately, as a distinct.Sketch
	Kinds    []string `json:"kinds,omitempty"`    // of keys, such as "ip"
	NoKeys   bool     `json:"no_keys,omitempty"`  // the Store hides identities, and there is no secret to seal keys
	LeftOut  LeftOut  `json:"left_out,omitzero"`  // for lack of room
	Newer    bool     `json:"-"`                  // a newer release has written it in a format that this one cannot read
}

// A Store is the state of a replica's store.
type Store struct {
	Kind   string    `json:"kind"`  // "redis", "memory" or "other"
	State  string    `json:"state"` // "answers", "stand_in" or "fails"
	Took   Millis    `json:"took_ms,omitempty"`
	Since  time.Time `json:"since,omitzero"` // since when a stand-in decides
	Reason string    `json:"reason,omitempty"`

	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	Outages     []Outage  `json:"outages,omitempty"` // the last 3, newest first
}

// An Outage is a store.Outage.
type Outage struct {
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"` // zero: it goes on
	Reason   string    `json:"reason,omitempty"`
	Answered int64     `json:"answered,omitempty"`
	Charged  int64     `json:"charged,omitempty"`
}

// Millis is a duration in milliseconds.
type Millis int64

// Duration returns m as a duration, at most the longest one.
func (m Millis) Duration() time.Duration {
	return time.Duration(min(m, math.MaxInt64/Millis(time.Millisecond))) * time.Millisecond
}

// Overrides are the limits that operators have changed, as far as a replica enforces them.
type Overrides struct {
	Count   int       `json:"count,omitempty"`   // in force
	Changed time.Time `json:"changed,omitzero"`  // the last change that the replica knows, by the clock of the Store
	Problem string    `json:"problem,omitempty"` // why they cannot be read
}

// A Policy is a policy and what it has decided.
type Policy struct {
	Name    string `json:"name"`
	Limit   string `json:"limit,omitempty"`   // in force; "" if a LimitFunc chooses it
	Program string `json:"program,omitempty"` // the limit of the program, if another one is in force

	LimitFunc  bool   `json:"limit_func,omitempty"`
	Shadow     bool   `json:"shadow,omitempty"`
	Hidden     bool   `json:"hidden,omitempty"`
	FailClosed bool   `json:"fail_closed,omitempty"`
	Optional   bool   `json:"optional,omitempty"`
	Settles    bool   `json:"settles,omitempty"`
	Unmounted  bool   `json:"unmounted,omitempty"` // no request has it
	MaxWait    Millis `json:"max_wait_ms,omitempty"`
	LockFor    Millis `json:"lock_for_ms,omitempty"`

	Total   Counts    `json:"total,omitzero"` // since the replica has started
	Last    Counts    `json:"last,omitzero"`  // of about the last 10 s
	History Histories `json:"history,omitzero"`

	Held int64 `json:"held,omitempty"` // slots of a concurrency limit, of all keys

	Settlements int64 `json:"settlements,omitempty"`
	Estimated   int64 `json:"settled_estimated,omitempty"`
	Final       int64 `json:"settled_final,omitempty"`

	// Others are limits of the same policy that other replicas have in force. Only Merge fills it.
	Others []string `json:"-"`
}

// LastFor is the time of [Snapshot.Last] and [Policy.Last].
const LastFor = 10 * time.Second

// Counts are observe.RouteCounts.
type Counts struct {
	Allowed    int64 `json:"allowed,omitempty"`
	Denied     int64 `json:"denied,omitempty"`
	WouldDeny  int64 `json:"would_deny,omitempty"`
	NotCharged int64 `json:"not_charged,omitempty"`
	Refused    int64 `json:"refused,omitempty"`
	Degraded   int64 `json:"degraded,omitempty"`
}

// Requests are all but those that another policy has denied.
func (c Counts) Requests() int64 {
	return c.Allowed + c.Denied + c.WouldDeny + c.NotCharged + c.Refused
}

// Histories are the last ten minutes, the last hour and the last six hours. One that is not kept is nil.
type Histories struct {
	TenMinutes *History `json:"10m,omitempty"`
	Hour       *History `json:"1h,omitempty"`
	SixHours   *History `json:"6h,omitempty"`
}

// Steps divide time.
type Steps struct {
	Seconds int       `json:"step"`         // the length of a step
	End     time.Time `json:"end,omitzero"` // of the last step, which is over
}

// HistorySteps is how many steps a [History] has.
const HistorySteps = 60

// A History counts requests in steps, the oldest first. Each list has HistorySteps counts, or is nil, which means that all are 0.
type History struct {
	Steps
	Allowed   []int64 `json:"allowed,omitempty"`
	Denied    []int64 `json:"denied,omitempty"`
	WouldDeny []int64 `json:"would_deny,omitempty"`
	Refused   []int64 `json:"refused,omitempty"`

	// Without is how many replicas have the policy and do not publish this history. Only Merge fills it.
	Without int `json:"-"`
}

// A Key is a key of a policy with many requests or denials.
type Key struct {
	Policy string `json:"policy"`
	Name   Text   `json:"key,omitempty"`    // as observe.TopKey.Key
	Sealed []byte `json:"sealed,omitempty"` // in place of Name in the text, see Seal

	// In the window of the Top. Requests is at most Error too high, as in observe.TopKey.
	Count  int64 `json:"requests,omitempty"`
	Denied int64 `json:"denied,omitempty"`
	Error  int64 `json:"error,omitempty"`

	// Lately, in the steps of Snapshot.KeySteps, the oldest first. The last count is that of the last step.
	Requests []int64 `json:"by_step,omitempty"`
	Denials  []int64 `json:"denied_by_step,omitempty"`
}

// A Block is a block or a lock of a key.
type Block struct {
	Policy string    `json:"policy"`
	Name   Text      `json:"key,omitempty"`
	Sealed []byte    `json:"sealed,omitempty"`
	Until  time.Time `json:"until"`
}

// LeftOut is how much a snapshot leaves out, because it must be small.
type LeftOut struct {
	Histories int `json:"histories,omitempty"` // of policies
	Keys      int `json:"keys,omitempty"`
	Blocks    int `json:"blocks,omitempty"`
	Policies  int `json:"policies,omitempty"`
}

// Text is a string of any bytes. It is a string in JSON if it is UTF-8, and else {"b64": "…"}.
type Text string

type encoded struct {
	B64 []byte `json:"b64"`
}

func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(encoded{[]byte(t)})
}

func (t *Text) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		var e encoded
		err := json.Unmarshal(text, &e)
		*t = Text(e.B64)
		return err
	}
	return json.Unmarshal(text, (*string)(t))
}
