package bucket

// A Past is the use of a bucket by a stand-in within the last Outage microseconds. Credits would have refilled since,
// if no other replica had used the bucket.
type Past struct{ Credits, Outage int64 }

// A Spare is the time for which a bucket was full when a Past was last charged, and the part of it that has paid for
// a Past. The zero value is for a bucket to which no Past was charged. Regular charges do not use it.
type Spare struct {
	Full int64 // microseconds up to At
	Used int64 // of them
	At   int64
}

// Settle returns the credits of p to charge at now to a bucket, which is stored as b. Credits are not charged if the
// bucket did not refill them within p.Outage because it was full. Each microsecond of that pays only once: s is the
// rest that earlier calls of Settle have left, and rest is the new rest.
//
// A bucket that is not stored counts as full for all of p.Outage. The time before is unknown: another stand-in may
// have been cut off while others used the bucket. So rest does not pay for that time. For a stored bucket, only the
// time since its last charge counts. The bucket does not record how long it was full before that.
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
