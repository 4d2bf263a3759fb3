package bucket

// A Past is what was used of a bucket in the last Outage microseconds without its knowledge: Credits that have had the
// time to refill since, if the bucket had room for that.
type Past struct{ Credits, Outage int64 }

// A Spare is for how long a bucket had been full when a Past was last charged, and how much of that has paid for one.
// The zero value is that of a bucket to which no Past was charged. Regular charges do not look at it.
type Spare struct {
	Full int64 // microseconds up to At
	Used int64 // of them
	At   int64
}

// Settle returns the credits of p that a bucket b, as it is stored, is still to be charged at now: all but what its
// refill within p.Outage did not add, because the bucket was full. Each microsecond of that pays once, for whoever
// comes first: s is what earlier ones left, and rest what p leaves.
//
// Of a bucket that is not stored nothing is known but that it is full, and it counts as full all the time. Of one that
// is, only the time since it was last charged counts: how often it was full before that, it does not tell.
func (l Limit) Settle(b Bucket, s Spare, p Past, now int64) (credits int64, rest Spare) {
	full := int64(MaxFill)
	if b.Unit != 0 {
		if b.Unit != l.Unit {
			b.Tokens = rescale(b.Tokens, b.Unit, l.Unit)
		}
		missing := ceilDiv(l.Capacity-min(b.Tokens, l.Capacity), l.Refill)
		full = max(0, min(now-b.LastRefill-missing, MaxFill))
	}
	kept := max(0, min(s.Full, s.At-(now-p.Outage))-s.Used)
	usable, wanted := min(full, p.Outage)+kept, ceilDiv(p.Credits, l.Refill)
	used := min(usable, wanted)
	if used < wanted {
		credits = p.Credits - used*l.Refill
	}
	switch {
	case used == 0:
		return credits, s
	case full == 0:
		return credits, Spare{Full: s.Full, Used: s.Used + used, At: s.At}
	default:
		return credits, Spare{Full: min(full+kept, MaxFill), Used: used, At: now}
	}
}

// Past returns the Past of tokens that were used in the last microseconds.
func (l Limit) Past(tokens, outage int64) Past {
	return Past{Credits: mulDiv(max(0, tokens), l.Unit, 1), Outage: max(0, min(outage, MaxFill))}
}
