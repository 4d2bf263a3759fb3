package admin

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/limits"
)

// A limitsView is the form that changes limits, and limits.json.
type limitsView struct {
	At      time.Time       `json:"at"`
	Limits  []limits.Entry  `json:"limits"`
	History []limits.Logged `json:"history"`
	Problem string          `json:"problem,omitempty"`
	Error   string          `json:"error,omitempty"` // why a change was not made

	Missing bool          `json:"-"` // there are no Config.Limits
	Done    string        `json:"-"`
	Typed   limits.Change `json:"-"` // of a change that was not made
	Beyond  bool          `json:"-"` // the change must be forced
}

// Row is a policy of the form.
type limitRow struct {
	limits.Entry
	Typed limits.Change
	Open  bool // the change was not made
	Force bool // it must be forced
}

// Changed reports whether a change is kept.
func (r limitRow) Changed() bool { return !r.At.IsZero() || r.Refused != "" }

// Rows are the policies of the form.
func (v *limitsView) Rows() (rows []limitRow) {
	for _, e := range v.Limits {
		row := limitRow{Entry: e, Typed: limits.Change{Limit: cmp.Or(e.InForce, e.Program), Was: e.InForce}}
		if v.Error != "" && v.Typed.Policy == e.Policy {
			row.Typed.Limit, row.Typed.Why = v.Typed.Limit, v.Typed.Why
			row.Open, row.Force = true, v.Beyond
		}
		rows = append(rows, row)
	}
	return rows
}

func (h *handler) limitsView() *limitsView {
	v := &limitsView{At: time.Now(), Limits: []limits.Entry{}, History: []limits.Logged{}, Missing: h.cfg.Limits == nil}
	if s := h.cfg.Limits; s != nil {
		v.Limits, v.History, v.Problem = append(v.Limits, s.List()...), append(v.History, s.History()...), s.Problem()
	}
	return v
}

func (h *handler) limitsJSON(c *call) error {
	if _, err := c.parameters(); err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, h.limitsView())
}

func (h *handler) limitsPage(c *call) error {
	values, err := c.parameters()
	if err != nil {
		return err
	}
	if c.r.Method == "POST" {
		return h.changeLimit(c, values)
	}
	v := h.limitsView()
	policy, _ := one(values, "policy")
	if action, _ := one(values, "done"); h.notices.take(notice{user: c.user, action: action, policy: policy}) {
		v.Done = limitDone(policy, action)
	}
	return h.renderLimits(c, http.StatusOK, v)
}

func (h *handler) renderLimits(c *call, status int, v *limitsView) error {
	if c.wantsJSON() {
		return c.writeJSON(status, v)
	}
	return h.render(c, status, "limits.html", "Limits", v, link{"limits.json", c.root + "limits.json"})
}

// limitDone says what a change has done, "" for an unknown one.
func limitDone(policy, action string) string {
	switch {
	case policy == "":
	case action == "limit":
		return "Policy " + policy + ": the limit is changed. All replicas follow within two seconds."
	case action == "end":
		return "Policy " + policy + ": the program's limit is in force again. All replicas follow within two seconds."
	}
	return ""
}

// changeLimit changes the limit of a policy, or ends a change.
func (h *handler) changeLimit(c *call, values map[string][]string) error {
	if h.cfg.Limits == nil {
		return refuse(http.StatusNotFound, "Limits cannot be changed here: set admin.Config.Limits to the result of limits.Watch.")
	}
	change := limits.Change{By: by(c.user)}
	var force, end string
	for name, field := range map[string]*string{"policy": &change.Policy, "limit": &change.Limit, "was": &change.Was, "why": &change.Why, "force": &force, "end": &end} {
		value, err := one(values, name)
		if err != nil {
			return err
		}
		*field = typed(value)
	}
	change.Force = force != ""
	for name, value := range map[string]string{"force": force, "end": end} {
		if value != "" && value != "1" && value != "true" {
			return refuse(http.StatusBadRequest, "%s must be 1, or be left out.", name)
		}
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	action := "limit"
	var err error
	if end != "" {
		action = "end"
		err = h.cfg.Limits.End(ctx, change)
	} else {
		err = h.cfg.Limits.Set(ctx, change)
	}
	h.logLimit(c, action, change, err)
	if err == nil && !c.wantsJSON() {
		h.notices.add(notice{user: c.user, action: action, policy: change.Policy})
		c.w.Header().Set("Location", c.root+"limits?"+url.Values{"policy": {change.Policy}, "done": {action}}.Encode())
		c.write(http.StatusSeeOther, "text/plain; charset=utf-8", []byte(limitDone(change.Policy, action)+"\n"))
		return nil
	}
	v := h.limitsView()
	v.Typed = change
	status := http.StatusOK
	var factor *limits.FactorError
	switch {
	case err == nil:
	case errors.As(err, &factor):
		status, v.Beyond = http.StatusUnprocessableEntity, true
		v.Error = "The change was not made. " + failed(err)
	case errors.Is(err, limits.ErrConflict):
		status, v.Error = http.StatusConflict, "The change was not made, because somebody else was faster. "+failed(err)
	case errors.Is(err, limits.ErrRefused):
		status, v.Error = http.StatusBadRequest, "The change was not made. "+failed(err)
	default:
		status, v.Error = http.StatusServiceUnavailable, "It is not known whether the change was made. The table shows what this replica enforces. "+failed(err)
	}
	return h.renderLimits(c, status, v)
}

// failed returns the text of an error of package limits as a sentence.
func failed(err error) string {
	text := strings.TrimPrefix(logtext.Show(err.Error(), 2*maxShown), "limits: ")
	return "Policy " + text + "."
}

// by returns who makes a change. Package limits takes 128 bytes.
func by(user string) string {
	const most = 128
	if user == "" {
		return "somebody whom authorize has not named"
	}
	if len(user) <= most {
		return user
	}
	cut := most - len("…")
	for !utf8.RuneStart(user[cut]) {
		cut--
	}
	return user[:cut] + "…"
}

// logLimit writes the line of a change, also of one that failed: it may have been carried out.
func (h *handler) logLimit(c *call, action string, change limits.Change, err error) {
	attrs := []slog.Attr{
		slog.String("user", c.user),
		slog.String("action", action),
		slog.String("policy", logtext.Show(change.Policy, maxNameInError)),
		slog.String("limit", logtext.Show(change.Limit, maxNameInError)),
		slog.String("was", logtext.Show(change.Was, maxNameInError)),
		slog.String("why", logtext.Show(change.Why, maxShown)),
		slog.Bool("force", change.Force),
	}
	level, message := slog.LevelInfo, "ratelimit: admin change"
	if err != nil {
		level, message = slog.LevelWarn, "ratelimit: admin change failed"
		attrs = append(attrs, slog.String("error", failure(err)))
	}
	h.logger().LogAttrs(c.r.Context(), level, message, attrs...)
}
