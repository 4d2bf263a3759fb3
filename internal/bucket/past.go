package bucket

// A Past is what a stand-in allowed of a bucket within the last Outage microseconds: Credits that would have refilled
// since if nobody else had used the bucket.
type Past struct{ Credits, Outage int64 }

// A Spare is for how long a bucket had been full when a Past was last charged, and how much of that has paid for one.
// The zero value is that of a bucket to which no Past was charged. Regular charges do not look at it.
type Spare struct {
	Full int64 // microseconds up to At
	Used int64 // of them
	At   int64
}

// Settle returns the credits of p that are to be charged at now to a bucket, which is stored as b. These are all but what
// the bucket did not refill within p.Outage because it was full. Each microsecond of that pays once: s is what earlier
// calls of Settle have left of it, and rest is what this one leaves.
//
// A bucket that is not stored counts as full for all of p.Outage. Nothing is known of the time before that, in which
// another stand-in may have been cut off while others used the bucket: rest does not pay for that. Of a bucket that is
// stored, only the time since its last charge counts: it does not tell how long it was full before.
func (l Limit) Settle(b Bucket, s Spare, p Past, now int64) (credits int64, rest Spare) {
	full := p.Outage
	if b.Unit != 0 {
		if b.Unit != l.Unit {
			b.Tokens = rescale(b.Tokens, b.Unit, l.Unit)
		}
		missing := ceilDiv(l.Capacity-min(b.Tokens, l.Capacity), l.Refill)
		full = max(0, min(now-b.LastRefill-missing, MaxFill))
	}
	older := s.At - (now - p.Outage) // the part of p.Outage before s.At
	kept, fresh := max(0, min(s.Full, older)-s.Used), min(full, p.Outage)
	wanted := ceilDiv(p.Credits, l.Refill)
	used := min(fresh+kept, wanted)
	if used < wanted {
		credits = p.Credits - used*l.Refill
	}
	switch {
	case used == 0:
		return credits, s
	case older > 0 && s.Full-s.Used > full:
		return credits, Spare{Full: s.Full, Used: s.Used + max(0, used-fresh), At: s.At}
	default:
		return credits, Spare{Full: full, Used: max(0, used-kept), At: now}
	}
}

// Past returns the Past of tokens that were used in the last microseconds.
func (l Limit) Past(tokens, outage int64) Past {
	return Past{Credits: mulDiv(max(0, tokens), l.Unit, 1), Outage: max(0, min(outage, MaxFill))}
}
