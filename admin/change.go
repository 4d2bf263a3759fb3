package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// maxLocation bounds the address that a change leads to. Proxies refuse longer ones.
const maxLocation = 2 << 10

// done says what each change has done.
var done = map[string]string{
	"reset":   "The bucket is full, and not blocked.",
	"refund":  "The tokens are back in the bucket.",
	"block":   "The key is blocked.",
	"unblock": "The key is not blocked.",

	"block" + onThisReplica:   "The store is unavailable. Only this replica blocks the key, until the store is back.",
	"unblock" + onThisReplica: "The store is unavailable. Only this replica has ended the block, until the store is back.",

	"limit":         "The limit is changed. All replicas follow within two seconds.",
	"end":           "The program's limit is in force again. All replicas follow within two seconds.",
	"limit" + onKey: "The limit of the key is changed. All replicas follow within two seconds.",
	"end" + onKey:   "The override of the key has ended. All replicas follow within two seconds.",
}

// onKey is behind the name of a change of a limit that is for one key.
const onKey = "-of-key"

// onThisReplica is behind the name of a change that only a stand-in of the store has made.
const onThisReplica = "-here"

// didWhat says what a change has done, "" for an unknown one.
func didWhat(policy, action string) string {
	if done[action] == "" || policy == "" {
		return ""
	}
	return "Policy " + policy + ": " + done[action]
}

// A changing is a change that a request asks for.
type changing struct {
	action, policy, key string
	n                   int64         // of refund
	d                   time.Duration // of block
	why                 string        // of block, with the user's name before it
	byID                bool          // the request named the key by its id
}

// change carries out one of the changes and leads to the page of the key.
func (h *handler) change(c *call) error {
	values, err := c.parameters()
	if err != nil {
		return err
	}
	a := changing{action: strings.TrimPrefix(c.path, "key/")}
	if a.policy, a.key, err = h.askedKey(values); err != nil {
		return err
	}
	a.byID = len(values["id"]) > 0
	if a.policy == "" {
		return refuse(http.StatusBadRequest, "Name a policy, as policy=api for example.")
	}
	switch a.action {
	case "block":
		var force bool
		if a.d, err = duration(values); err == nil {
			if a.why, err = reason(c.user, values); err == nil {
				force, err = flag(values, "force")
			}
		}
		if err == nil && !force {
			if why := h.unknownKind(c.r.Context(), a.key); why != "" {
				return h.notBlocked(c, a, values, why)
			}
		}
	case "refund":
		a.n, err = tokens(values)
	}
	if err != nil {
		return err
	}
	r, err := h.carryOut(c.r.Context(), a)
	h.log(c, a, r, err)
	var refused *problem
	if errors.As(err, &refused) {
		return err
	}
	return h.afterChange(c, a, r, err)
}

// notBlocked answers with the page of the key, on which the block can be forced, and says why.
func (h *handler) notBlocked(c *call, a changing, values map[string][]string, why string) error {
	why = "Nothing was blocked. " + why
	if !c.wantsHTML() {
		return refuse(http.StatusUnprocessableEntity, "%s To block it all the same, add force=1.", why)
	}
	v := h.keyView(c, a.policy, a.key)
	v.byID, v.Failed = a.byID, why
	duration, _ := one(values, "for")
	reason, _ := one(values, "why")
	v.Unforced = unforced{a.policy, typed(duration), typed(reason)}
	return h.renderKey(c, http.StatusUnprocessableEntity, v)
}

func (h *handler) carryOut(ctx context.Context, a changing) (ratelimit.Result, error) {
	p := ratelimit.Policy{Name: a.policy}
	known := p
	for _, of := range h.policies() {
		if of.Name == a.policy {
			known = of
		}
	}
	if known.Limit.IsConcurrency() && (a.action == "reset" || a.action == "refund") {
		return ratelimit.Result{}, refuse(http.StatusConflict, "Nothing was changed: requests hold the slots of this policy until they end.")
	}
	switch a.action {
	case "reset":
		return h.limiter.Reset(ctx, p, a.key)
	case "block":
		return h.limiter.Block(ctx, p, a.key, a.d, a.why)
	case "unblock":
		return h.limiter.Unblock(ctx, p, a.key)
	}
	return h.refund(ctx, known, a)
}

// refund needs the bucket's limit, which may be that of a tier.
func (h *handler) refund(ctx context.Context, p ratelimit.Policy, a changing) (ratelimit.Result, error) {
	b := h.look(ctx, p, a.key)
	switch {
	case b.Error != "":
		return ratelimit.Result{}, fmt.Errorf("the bucket cannot be read: %s", b.Error)
	case b.State == "full":
		return ratelimit.Result{}, refuse(http.StatusConflict, "Nothing was refunded: the bucket is full.")
	case b.Degraded:
		return ratelimit.Result{}, refuse(http.StatusConflict, "Nothing was refunded: the store is unavailable, and the stand-in's limit may be a part of the real one. Reset works.")
	case b.limit == ratelimit.Limit{}:
		return ratelimit.Result{}, refuse(http.StatusConflict, "Nothing was refunded: the limit of the bucket is not known. Reset works.")
	case a.n > b.Burst:
		return ratelimit.Result{}, refuse(http.StatusBadRequest, "n is %d. The bucket holds at most %d tokens.", a.n, b.Burst)
	}
	return h.limiter.Refund(ctx, ratelimit.Policy{Name: a.policy, Limit: b.limit}, a.key, a.n)
}

// log writes the line of a change, also of one that failed: it may have been carried out.
func (h *handler) log(c *call, a changing, r ratelimit.Result, err error) {
	attrs := []slog.Attr{
		slog.String("user", c.user),
		slog.String("action", a.action),
		slog.String("policy", a.policy),
	}
	attrs = append(attrs, h.named(a.policy, a.key).attrs()...)
	switch a.action {
	case "block":
		attrs = append(attrs, slog.Duration("for", a.d), slog.String("reason", a.why))
	case "refund":
		attrs = append(attrs, slog.Int64("tokens", a.n))
	}
	level, message := slog.LevelInfo, "ratelimit: admin change"
	if err != nil {
		level, message = slog.LevelWarn, "ratelimit: admin change failed"
		attrs = append(attrs, slog.String("error", failure(err)))
	} else {
		attrs = append(attrs, slog.Bool("degraded", r.Degraded))
	}
	h.logger().LogAttrs(c.r.Context(), level, message, attrs...)
}

// afterChange leads to the page of the key. It answers with the page itself if the address would be too long or would
// show a hidden key, and after a failure.
func (h *handler) afterChange(c *call, a changing, r ratelimit.Result, failed error) error {
	did := a.action
	if r.Degraded && done[did+onThisReplica] != "" {
		did += onThisReplica
	}
	named := h.nameKey(a.key)
	if failed == nil && !c.wantsJSON() && (named.ID == "" || a.byID) {
		location := c.root + "key?" + named.address(a.policy) + "&done=" + did
		if len(location) <= maxLocation {
			h.notices.add(notice{c.user, did, a.policy, a.key})
			c.w.Header().Set("Location", location)
			c.write(http.StatusSeeOther, "text/plain; charset=utf-8", []byte(didWhat(a.policy, did)+"\n"))
			return nil
		}
	}
	v := h.keyView(c, a.policy, a.key)
	v.byID = a.byID
	status := http.StatusOK
	if failed != nil {
		status = http.StatusServiceUnavailable
		v.Failed = fmt.Sprintf("It is not known whether the change was made: %s. The buckets show what is so now.", failure(failed))
		if errors.Is(failed, errors.ErrUnsupported) {
			status, v.Failed = http.StatusNotImplemented, "The change was not made: the store does not support it."
		}
	} else {
		v.Done = didWhat(a.policy, did)
	}
	if c.wantsJSON() {
		return c.writeJSON(status, v)
	}
	return h.renderKey(c, status, v)
}
