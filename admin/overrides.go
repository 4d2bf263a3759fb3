package admin

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/endtime"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/override"
)

// The most overrides of keys that the page and its JSON list.
const (
	maxKeyRows = 100
	maxKeyJSON = 10_000
)

// overridesView is the page that changes limits, and overrides.json.
type overridesView struct {
	At          time.Time       `json:"at"`
	Policies    []overrideFacts `json:"policies"`
	Keys        []overrideFacts `json:"keys"`
	KeysLeftOut int             `json:"keys_left_out"`
	History     []overrideFacts `json:"history"`
	Problem     string          `json:"problem,omitempty"`
	Error       string          `json:"error,omitempty"` // why a change was not made

	Missing bool        `json:"-"` // there are no Config.Overrides
	Search  string      `json:"-"`
	Done    string      `json:"-"`
	Typed   typedChange `json:"-"` // that was not made
	Beyond  bool        `json:"-"` // the change must be forced
}

// overrideFacts are the limit of a policy, or of one of its keys.
type overrideFacts struct {
	override.Entry
	Key string `json:"key,omitempty"` // in place of that of the Entry: the name of a key that is not shown
	B64 string `json:"key_b64,omitempty"`
	ID  string `json:"id,omitempty"`

	Name string `json:"name,omitempty"` // of the key, by Config.Names
}

// A typedChange is a change as an operator has typed it.
type typedChange struct {
	override.Change
	Until string
	end   bool
}

// An overrideRow is a form that changes a limit.
type overrideRow struct {
	overrideFacts
	Row   string // its id on the page
	Typed typedChange
	Open  bool // the change was not made
	Force bool // it must be forced
}

// Changed reports whether there is an override.
func (r overrideRow) Changed() bool { return !r.At.IsZero() }

// Named names the key on the page, "" for a whole policy.
func (f overrideFacts) Named() keyFacts { return keyFacts{f.Key, f.B64, f.ID, f.Name} }

// Address is the address of the key's page.
func (f overrideFacts) Address() string { return "key?" + f.Named().address(f.Policy) }

// Field and FieldValue name the key in forms.
func (f overrideFacts) Field() string      { return f.Named().Field() }
func (f overrideFacts) FieldValue() string { return f.Named().FieldValue() }

// overrideFacts names the key of an entry. Its texts may quote the key.
func (h *handler) overrideFacts(e override.Entry) overrideFacts {
	if e.Key == "" {
		return overrideFacts{Entry: e}
	}
	named := h.named(e.Policy, e.Key)
	e.Refused = h.withoutKey(e.Refused, e.Policy, e.Key)
	return overrideFacts{e, named.Key, named.B64, named.ID, named.Name}
}

// withoutKey replaces a key in a text of package override, if keys are not shown. The text has the policy and the key as
// one name, which may be cut and escaped.
func (h *handler) withoutKey(text, policy, key string) string {
	if h.cfg.KeySecret == nil || key == "" {
		return text
	}
	return strings.ReplaceAll(text, logtext.Show(policy+" "+key, maxShown), policy+" "+h.nameKey(key).Shown())
}

// A keylessError is an error of package override in whose text the key is replaced.
type keylessError struct {
	error
	text string
}

func (e keylessError) Error() string { return e.text }
func (e keylessError) Unwrap() error { return e.error }

// row returns the form of a limit, with what was typed if the change was not made.
func (v *overridesView) row(id string, f overrideFacts) overrideRow {
	row := overrideRow{overrideFacts: f, Row: id}
	row.Typed.Limit, row.Typed.Was = cmp.Or(f.Limit, f.InForce), f.InForce
	if strings.HasPrefix(row.Typed.Limit, "of ") { // a LimitFunc chooses it
		row.Typed.Limit = ""
	}
	if !f.Until.IsZero() {
		row.Typed.Until = stamp(f.Until)
	}
	if t := v.Typed; v.Error != "" && t.Policy == f.Policy && t.Key == f.Entry.Key {
		row.Typed.Limit, row.Typed.Why, row.Typed.Until = t.Limit, t.Why, t.Until
		row.Open, row.Force = true, v.Beyond
	}
	return row
}

// Rows are the forms of the policies, and those of keys.
func (v *overridesView) Rows() (rows [2][]overrideRow) {
	for i, list := range [][]overrideFacts{v.Policies, v.Keys} {
		for j, f := range list {
			rows[i] = append(rows[i], v.row(fmt.Sprint([]string{"of-", "key-"}[i], j), f))
		}
	}
	return rows
}

// overridesView lists the policies and the overrides of at most a number of keys. If search is not empty, only keys that
// contain it are listed, or only the key of that name if keys are not shown.
func (h *handler) overridesView(search string, most int, typed typedChange) *overridesView {
	s := h.cfg.Overrides
	v := &overridesView{At: time.Now(), Policies: []overrideFacts{}, Keys: []overrideFacts{}, History: []overrideFacts{}, Missing: s == nil, Search: search, Typed: typed}
	if s == nil {
		return v
	}
	for _, e := range s.List(func(policy, key string) bool { return key == "" || key == typed.Key || h.found(key, search) }) {
		switch f := h.overrideFacts(e); {
		case e.Key == "":
			v.Policies = append(v.Policies, f)
		case len(v.Keys) < most || e.Key == typed.Key:
			v.Keys = append(v.Keys, f)
		default:
			v.KeysLeftOut++
		}
	}
	for _, e := range s.History() {
		v.History = append(v.History, h.overrideFacts(e))
	}
	v.Problem = s.Problem()
	return v
}

func (h *handler) found(key, search string) bool {
	if search == "" || h.cfg.KeySecret == nil {
		return strings.Contains(strings.ToLower(key), strings.ToLower(search))
	}
	return keyname.Secret(h.cfg.KeySecret, key) == search
}

// ofKey returns the form of a key's limit for each policy.
func (h *handler) ofKey(key string) map[string]overrideRow {
	if h.cfg.Overrides == nil {
		return nil
	}
	rows := make(map[string]overrideRow)
	for _, e := range h.cfg.Overrides.List(func(_, of string) bool { return of == "" || of == key }) {
		if e.Key == "" { // the limit of the policy, which a key has without an override
			e = override.Entry{Policy: e.Policy, Key: key, Program: e.Program, InForce: e.InForce}
		}
		rows[e.Policy] = new(overridesView).row("limit-of-"+e.Policy, h.overrideFacts(e))
	}
	return rows
}

func (h *handler) overridesJSON(c *call) error {
	values, err := c.parameters()
	if err != nil {
		return err
	}
	search, err := one(values, "search")
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, h.overridesView(search, maxKeyJSON, typedChange{}))
}

func (h *handler) overridesPage(c *call) error {
	values, err := c.parameters()
	if err != nil {
		return err
	}
	if c.r.Method == "POST" {
		return h.changeLimit(c, values)
	}
	search, err := one(values, "search")
	if err != nil {
		return err
	}
	v := h.overridesView(typed(search), maxKeyRows, typedChange{})
	policy, _ := one(values, "policy")
	if action, _ := one(values, "done"); h.notices.take(notice{user: c.user, action: action, policy: policy}) {
		v.Done = didWhat(policy, action)
	}
	return h.renderOverrides(c, http.StatusOK, v)
}

func (h *handler) renderOverrides(c *call, status int, v *overridesView) error {
	switch {
	case c.wantsJSON():
		return c.writeJSON(status, v)
	case c.r.Method == "POST" && !c.wantsHTML(): // from a shell
		c.write(status, "text/plain; charset=utf-8", []byte(v.said()+"\n"))
		return nil
	}
	return h.render(c, status, "overrides.html", "Limits", v, link{"overrides.json", c.root + "overrides.json"})
}

// said is what a change has done, or why it was not made.
func (v *overridesView) said() string {
	if v.Beyond {
		return v.Error + " To force it, add force=1."
	}
	return cmp.Or(v.Error, v.Done)
}

// askedChange returns the change that a request asks for.
func (h *handler) askedChange(c *call, values map[string][]string) (t typedChange, err error) {
	t.By = by(c.user)
	for name, field := range map[string]*string{"policy": &t.Policy, "limit": &t.Limit, "was": &t.Was, "why": &t.Why, "until": &t.Until} {
		value, err := one(values, name)
		if err != nil {
			return t, err
		}
		*field = typed(value)
	}
	for name, field := range map[string]*bool{"force": &t.Force, "end": &t.end} {
		if *field, err = flag(values, name); err != nil {
			return t, err
		}
	}
	if len(values["key"])+len(values["key_b64"])+len(values["id"]) > 0 {
		t.Key, err = h.key(values, t.Policy)
	}
	return t, err
}

// changeLimit changes the limit of a policy or of a key, or ends a change.
func (h *handler) changeLimit(c *call, values map[string][]string) error {
	if h.cfg.Overrides == nil {
		return refuse(http.StatusNotFound, "Limits cannot be changed here: set admin.Config.Overrides to the result of override.Watch.")
	}
	t, err := h.askedChange(c, values)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	action := "limit"
	if t.end {
		action = "end"
		err = h.cfg.Overrides.End(ctx, t.Change)
	} else if t.Change.Until, err = endtime.Parse(t.Until, time.Now()); err != nil {
		err = fmt.Errorf("override: %s: %w: Until: %w, or be left out", t.Policy, override.ErrRefused, err)
	} else {
		err = h.cfg.Overrides.Set(ctx, t.Change)
	}
	if err != nil {
		err = keylessError{err, h.withoutKey(err.Error(), t.Policy, t.Key)}
	}
	if t.Key != "" {
		action += onKey
	}
	h.logLimit(c, action, t, err)
	if err != nil {
		return h.notChanged(c, t, err)
	}
	byID := len(values["id"]) > 0
	if location := h.afterLimit(c, t, action, byID); location != "" {
		h.notices.add(notice{c.user, action, t.Policy, t.Key})
		c.w.Header().Set("Location", location)
		c.write(http.StatusSeeOther, "text/plain; charset=utf-8", []byte(didWhat(t.Policy, action)+"\n"))
		return nil
	}
	v := h.overridesView("", maxKeyRows, t)
	v.Done = didWhat(t.Policy, action)
	return h.renderOverrides(c, http.StatusOK, v)
}

// afterLimit returns the address that a change leads to, "" if the answer is the page itself. An address must not be too
// long, or show a key that is hidden.
func (h *handler) afterLimit(c *call, t typedChange, action string, byID bool) string {
	named := h.nameKey(t.Key)
	location := c.root + "overrides?" + url.Values{"policy": {t.Policy}}.Encode() + "&done=" + action
	if t.Key != "" {
		location = c.root + "key?" + named.address(t.Policy) + "&done=" + action
	}
	if c.wantsJSON() || t.Key != "" && named.ID != "" && !byID || len(location) > maxLocation {
		return ""
	}
	return location
}

// notChanged answers with the page and why a change was not made, with what was typed.
func (h *handler) notChanged(c *call, t typedChange, failed error) error {
	v := h.overridesView("", maxKeyRows, t)
	text := strings.TrimPrefix(logtext.Show(failed.Error(), 2*maxShown), "override: ")
	v.Error = "Policy " + text + "."
	status := http.StatusServiceUnavailable
	switch {
	case errors.As(failed, new(*override.FactorError)):
		status, v.Beyond, v.Error = http.StatusUnprocessableEntity, true, "The change was not made. "+v.Error
	case errors.Is(failed, override.ErrConflict):
		status, v.Error = http.StatusConflict, "The change was not made, because somebody else was faster. "+v.Error
	case errors.Is(failed, override.ErrRefused):
		status, v.Error = http.StatusBadRequest, "The change was not made. "+v.Error
	default:
		v.Error = "It is not known whether the change was made. The table shows what this replica enforces. " + v.Error
	}
	v.addTyped(h)
	return h.renderOverrides(c, status, v)
}

// addTyped adds the form of a key that has no override yet, first.
func (v *overridesView) addTyped(h *handler) {
	row := h.ofKey(v.Typed.Key)[v.Typed.Policy]
	if v.Typed.Key != "" && row.Policy != "" && !row.Changed() {
		v.Keys = append([]overrideFacts{row.overrideFacts}, v.Keys...)
	}
}

// by returns who makes a change. Package override takes 128 bytes.
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
func (h *handler) logLimit(c *call, action string, t typedChange, err error) {
	attrs := []slog.Attr{
		slog.String("user", c.user),
		slog.String("action", action),
		slog.String("policy", logtext.Show(t.Policy, maxNameInError)),
	}
	if t.Key != "" {
		attrs = append(attrs, h.named(t.Policy, t.Key).attrs()...)
	}
	attrs = append(attrs,
		slog.String("limit", logtext.Show(t.Limit, maxNameInError)),
		slog.String("until", logtext.Show(t.Until, maxNameInError)),
		slog.String("was", logtext.Show(t.Was, maxNameInError)),
		slog.String("why", logtext.Show(t.Why, maxShown)),
		slog.Bool("force", t.Force))
	level, message := slog.LevelInfo, "ratelimit: admin change"
	if err != nil {
		level, message = slog.LevelWarn, "ratelimit: admin change failed"
		attrs = append(attrs, slog.String("error", failure(err)))
	}
	h.logger().LogAttrs(c.r.Context(), level, message, attrs...)
}
