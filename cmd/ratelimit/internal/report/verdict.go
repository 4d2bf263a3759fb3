package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// Advice says in a few sentences what to do about the policy.
func (p *Policy) Advice() string {
	v := p.Verdict
	if v == nil {
		return p.Outcome()
	}
	say := []string{v.outliers(p.Requests), p.use()}
	if v.Others == 0 {
		say = say[1:]
	}
	if len(v.Excluded) > 0 {
		say = append(say, fmt.Sprintf("Left out by -exclude: %s.", made(v.Excluded, p.Requests)))
	}
	return strings.Join(say, " ")
}

// outliers says which clients to deny.
func (v *Verdict) outliers(requests int64) string {
	switch n := len(v.Outliers); {
	case n > 0 && !v.Apart && v.Others > 0:
		return fmt.Sprintf("Look at %s first, because others need nearly as much: %s.", numbers.Of(int64(n), "outlier"), made(v.Outliers, requests))
	case n == 1:
		return fmt.Sprintf("Deny this client: %s.", made(v.Outliers, requests))
	case n > 1:
		return fmt.Sprintf("Deny these %s: %s.", numbers.Count(n), made(v.Outliers, requests))
	case v.Above > 0:
		return "No client is an outlier."
	case v.Others == 1:
		return "1 client is too few to tell outliers."
	}
	return fmt.Sprintf("%s are too few to tell outliers.", numbers.Of(v.Others, "client"))
}

// use says which limit to use.
func (p *Policy) use() string {
	v, own, limit := p.Verdict, key(p.Limit, 60), key(p.Verdict.Limit, 60)
	switch {
	case v.Others == 0:
		return "No other client is left to choose a limit for."
	case v.Keep && v.Limit != "" && 2*v.Burst <= p.ownBurst():
		return fmt.Sprintf("Keep %s: it spares %s. %s would, too.", own, v.spared(), limit)
	case v.Keep:
		return fmt.Sprintf("Keep %s: it spares %s.", own, v.spared())
	case v.Limit == "":
		return fmt.Sprintf("No limit near %s spares %s.", own, v.spared())
	}
	return fmt.Sprintf("Use %s: it spares %s.", limit, v.spared())
}

// spared names the clients that a limit spares.
func (v *Verdict) spared() string {
	left := len(v.Outliers)+len(v.Excluded) > 0
	switch {
	case v.Others == 1 && left:
		return "the other one"
	case v.Others == 1:
		return "its only client"
	case left:
		return fmt.Sprintf("all %s others", numbers.Count(v.Others))
	}
	return fmt.Sprintf("all %s clients", numbers.Count(v.Others))
}

// ownBurst returns the burst of the policy, or the tokens of its quota.
func (p *Policy) ownBurst() int64 {
	if i := slices.IndexFunc(p.Curve, func(at Point) bool { return at.Own }); i >= 0 {
		return p.Curve[i].Burst
	}
	return 0
}

// made names clients, and says which part of the requests they made.
func made(list []Outlier, all int64) string {
	const most = 5
	var keys []string
	requests := int64(0)
	for i, o := range list {
		requests += o.Requests
		if i < most {
			keys = append(keys, key(o.Key, 80))
		}
	}
	text := strings.Join(keys, ", ")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %s more (-json has all)", numbers.Count(more))
	}
	return fmt.Sprintf("%s, with %s of the requests", text, share(requests, all))
}

// Rule says which clients are outliers, "" if too few are there to tell.
func (p *Policy) Rule() string {
	v := p.Verdict
	if v == nil || v.Above == 0 {
		return ""
	}
	capacity, why := p.Capacity(), "which is that of the policy"
	if v.Above == OutlierFactor*v.Typical {
		why = fmt.Sprintf("which is %d times what spares 95 %% of the clients", OutlierFactor)
	}
	return fmt.Sprintf("An outlier is a client that needs a %s of more than %s, %s. An office behind one address can be one, too: look before you deny it.", capacity, numbers.Count(v.Above), why)
}

// Others names the clients that Spare is about.
func (p *Policy) Others() string {
	if v := p.Verdict; v != nil && len(v.Outliers)+len(v.Excluded) > 0 {
		return "the other clients"
	}
	return "clients"
}
