package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

// maxLooks bounds the buckets that are looked at at the same time for one answer.
const maxLooks = 8

// keyView is what the page of a key shows, and key.json.
type keyView struct {
	Version int        `json:"version"`
	At      time.Time  `json:"at"`
	Store   storeFacts `json:"store"`
	keyFacts
	Policy string `json:"policy,omitempty"` // that was asked for
	Done   string `json:"done,omitempty"`   // what was done just before
	Failed string `json:"failed,omitempty"` // why it was not done, or is not known

	Buckets         []bucketFacts `json:"buckets"`
	PoliciesLeftOut int           `json:"policies_left_out"`

	Keyless  string   `json:"-"` // why no replica lists keys, "" if some do
	Unforced unforced `json:"-"` // a block that was not made

	raw  string
	byID bool // the request named it by its ID
}

// An unforced is a block of a key whose kind no replica has seen, as an operator has typed it.
type unforced struct{ Policy, For, Why string }

// bucketFacts are the bucket of a key under a policy.
type bucketFacts struct {
	Policy string `json:"policy"`

	// State is "full" (it was never used, or has refilled), "ready" (it holds a token), "empty", "debt", "blocked",
	// "refuses" (the store is unavailable, and the policy fails closed) or "unknown". Free slots are tokens.
	State string `json:"state"`

	// Limit is the limit of the last charge, such as a member's tier. Of a full bucket it is the policy's, and "" if
	// only a LimitFunc knows it.
	Limit     string  `json:"limit"`
	Burst     int64   `json:"burst"`      // or the tokens of a quota, or the slots of a concurrency limit
	PerSecond float64 `json:"per_second"` // 0 for a quota, and for slots
	Tokens    float64 `json:"tokens"`     // below 0 in debt, except for a quota; not known while blocked

	Held int64 `json:"held,omitempty"` // slots; not known while blocked

	PeriodEnds time.Time `json:"period_ends,omitzero"` // of a quota, in its time zone; not known while blocked

	NextIn    seconds `json:"next_in_seconds"` // until a request of cost 1 can go on
	FullIn    seconds `json:"full_in_seconds"`
	Blocked   bool    `json:"blocked"` // by Block, or by LockFor
	Locked    bool    `json:"locked"`  // by LockFor
	Since     seconds `json:"blocked_since_seconds,omitempty"`
	Reason    string  `json:"reason,omitempty"` // who has blocked it, and why
	Locks     bool    `json:"locks"`            // the policy has a LockFor
	Shadow    bool    `json:"shadow"`
	LimitFunc bool    `json:"limit_func"`
	Closed    bool    `json:"fail_closed"`
	Degraded  bool    `json:"degraded"` // a stand-in of this replica answered
	Error     string  `json:"error,omitempty"`

	Lately   *keyLately   `json:"lately"` // nil if no replica lists the key
	Override *overrideRow `json:"-"`      // the form of the key's limit, nil without Config.Overrides

	limit ratelimit.Limit
	own   bool // limit is the bucket's own, also that of a stand-in
}

// look returns the bucket of a key under a policy. It asks without a Limit, and so gets the bucket's own.
func (h *handler) look(ctx context.Context, p ratelimit.Policy, key string) (b bucketFacts) {
	b = bucketFacts{Policy: p.Name, State: "unknown", Locks: p.LockFor > 0, Shadow: p.Shadow, LimitFunc: p.LimitFunc != nil, Closed: p.FailClosed && !p.Shadow}
	defer func() { // in a goroutine, a panic of somebody's Store would end the process
		if panicked := recover(); panicked != nil {
			b.Error = "the store panicked"
			h.logger().LogAttrs(ctx, slog.LevelError, "ratelimit: admin look panicked", slog.String("panic", logtext.Show(fmt.Sprint(panicked), maxShown)))
		}
	}()
	known := p.Limit != (ratelimit.Limit{}) && p.Limit != ratelimit.Unlimited
	r, err := h.limiter.Peek(ctx, ratelimit.Policy{Name: p.Name}, key)
	if errors.Is(err, errors.ErrUnsupported) && known { // a Store that reports no limits
		r, err = h.limiter.Peek(ctx, ratelimit.Policy{Name: p.Name, Limit: p.Limit}, key)
	} else if r.Used {
		b.own = true
	}
	if err != nil {
		b.Error = failure(err)
		return b
	}
	b.Degraded, b.Blocked, b.Locked = r.Degraded, r.Blocked, r.Locked
	b.Since, b.Reason = seconds(r.BlockedSince), typed(r.Reason)
	if known && (r.Limit == ratelimit.Limit{} || sameLimit(r.Limit, p.Limit)) {
		r.Limit = p.Limit // as the program writes it: 600/1m rather than 10/1s
	}
	if b.limit = r.Limit; r.Limit != (ratelimit.Limit{}) {
		b.Limit = r.Limit.String()
		b.Burst = cmp.Or(r.Limit.Burst, r.Limit.Rate)
		if r.Limit.Per > 0 {
			b.PerSecond = finite(float64(r.Limit.Rate) / r.Limit.Per.Seconds())
		}
	}
	b.fill(&r)
	return b
}

// sameLimit reports whether two limits that are no quotas mean the same.
func sameLimit(a, b ratelimit.Limit) bool {
	return a.Period() == 0 && b.Period() == 0 && cmp.Or(a.Burst, a.Rate) == cmp.Or(b.Burst, b.Rate) &&
		float64(a.Rate)/a.Per.Seconds() == float64(b.Rate)/b.Per.Seconds()
}

// fill sets what r says of the bucket.
func (b *bucketFacts) fill(r *ratelimit.Bucket) {
	if b.own {
		r.Degraded = false // or Until would allow for a limit that is only a part
	}
	b.FullIn = seconds(r.ResetAfter)
	if r.Limit.Period() != 0 && !r.Blocked {
		b.PeriodEnds = periodEnd(r)
	}
	switch {
	case b.Degraded && b.Closed:
		b.State = "refuses"
	case r.Blocked:
		b.State, b.NextIn = "blocked", seconds(r.RetryAfter)
	case !r.Used:
		b.State, b.Tokens, b.FullIn = "full", float64(b.Burst), 0
	default:
		if b.Tokens = float64(r.Remaining); r.Limit.Per > 0 {
			b.Tokens = tokensOf(r, b.Burst, b.PerSecond)
		}
		switch {
		case r.Remaining > 0:
			b.State = "ready"
		case b.Tokens < 0:
			b.State, b.NextIn = "debt", seconds(r.Until(1))
		default:
			b.State, b.NextIn = "empty", seconds(r.Until(1))
		}
		if b.HasSlots() {
			b.Held = b.Burst - r.Remaining
		}
	}
}

// tokensOf returns the tokens of a bucket with the part of the next one, or less than 0 in debt. ResetAfter shows how
// many are missing.
func tokensOf(r *ratelimit.Bucket, burst int64, perSecond float64) float64 {
	tokens := float64(burst) - r.ResetAfter.Seconds()*perSecond
	whole := float64(r.Remaining)
	if r.Remaining > 0 || tokens >= 0 { // ResetAfter is rounded up
		tokens = min(max(tokens, whole), math.Nextafter(whole+1, 0))
	}
	return finite(tokens)
}

// periodEnd returns when the period of a quota ends. A bucket that is full does not have it, so that the calendar decides.
func periodEnd(r *ratelimit.Bucket) time.Time {
	period, err := store.NewPeriod(r.Limit.Period(), r.Limit.Zone())
	if err != nil { // the time zone of a policy that is not mounted
		return time.Time{}
	}
	now := time.Now()
	if r.Used {
		return now.Add(r.ResetAfter).Round(time.Second).In(period.Location())
	}
	_, until := period.Bounds(now.UnixMicro())
	return time.UnixMicro(until).In(period.Location())
}

// keyView looks at all buckets of a key.
func (h *handler) keyView(c *call, policy, key string) *keyView {
	ctx, cancel := c.withTimeout()
	defer cancel()
	v := &keyView{Version: version, At: time.Now().UTC(), keyFacts: h.nameKey(key), Policy: policy, raw: key}
	all := h.policies()
	if i := slices.IndexFunc(all, func(p ratelimit.Policy) bool { return p.Name == policy }); i > 0 { // it comes first
		first := all[i]
		all = slices.Insert(slices.Delete(all, i, i+1), 0, first)
	}
	shown := all[:min(len(all), maxPolicies)]
	v.Name = h.nameUnder(shown, key)
	v.PoliciesLeftOut = len(all) - len(shown)
	v.Buckets = make([]bucketFacts, len(shown))

	var wg sync.WaitGroup
	places := make(chan struct{}, maxLooks)
	overrides := h.ofKey(key)
	for i, p := range shown {
		wg.Go(func() {
			places <- struct{}{}
			v.Buckets[i] = h.look(ctx, p, key)
			if row, ok := overrides[p.Name]; ok {
				v.Buckets[i].Override = &row
			}
			<-places
		})
	}
	f := h.facts(c.r.Context()) // at the same time: a store that hangs takes both their time
	wg.Wait()
	v.Store, v.Keyless = storeFacts{f.here}, keyless(h, f.roster)
	for i := range v.Buckets {
		v.Buckets[i].Lately = h.lately(f.roster, v.Buckets[i].Policy, key)
	}
	return v
}

// askedKey returns the policy and the key that a request names.
func (h *handler) askedKey(values map[string][]string) (policy, key string, err error) {
	if policy, err = h.policy(values); err != nil {
		return "", "", err
	}
	key, err = h.key(values, policy)
	return policy, key, err
}

func (h *handler) keyJSON(c *call) error {
	v, err := h.askedView(c)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, v)
}

func (h *handler) askedView(c *call) (*keyView, error) {
	values, err := c.parameters()
	if err != nil {
		return nil, err
	}
	policy, key, err := h.askedKey(values)
	if err != nil {
		return nil, err
	}
	v := h.keyView(c, policy, key)
	v.byID = len(values["id"]) > 0 && v.ID != ""
	if action, _ := one(values, "done"); c.r.Method != "POST" && h.notices.take(notice{c.user, action, policy, key}) {
		v.Done = didWhat(policy, action)
	}
	return v, nil
}

// SpaceAround reports whether the key begins or ends with a space, which nobody sees.
func (v *keyView) SpaceAround() bool { return strings.TrimSpace(v.raw) != v.raw }

// Field and FieldValue name the key in forms. A browser would change some of its bytes. Where keys are not shown, the page
// has the key only for those who named it.
func (v *keyView) Field() string {
	if v.byID {
		return "id"
	}
	return "key_b64"
}

func (v *keyView) FieldValue() string {
	if v.byID {
		return v.ID
	}
	return encodeKey(v.raw)
}

// TypedBlock is what the form that blocks a key under a policy has at first. It has a Policy if the block must be forced.
func (v *keyView) TypedBlock(policy string) unforced {
	if v.Unforced.Policy == policy {
		return v.Unforced
	}
	return unforced{For: "15m"}
}
