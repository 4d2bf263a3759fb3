package memstore

// A deadline says when an entry is full, at the earliest. The deadlines of a shard are a heap. A charge
// only moves the time further away, so it leaves its deadline as it is, to be put right when it comes up.
type deadline struct {
	at    int64
	entry uint32
}

// firstIsRight reports whether deadlines[0] is that of the entry that is full first. If not, it has put
// one deadline right; repeated, it reports true in the end.
func (s *shard) firstIsRight() bool {
	first := &s.deadlines[0]
	at := s.entry(first.entry).full()
	if at <= first.at {
		return true
	}
	first.at = at
	s.down(0)
	return false
}

func (s *shard) addDeadline(n uint32, e *entry) {
	e.deadline = uint32(len(s.deadlines))
	s.deadlines = append(s.deadlines, deadline{at: e.full(), entry: n})
	s.up(e.deadline)
}

// advanceDeadline puts right the deadline of an entry that may be full sooner than it says.
func (s *shard) advanceDeadline(e *entry) {
	if at := e.full(); at < s.deadlines[e.deadline].at {
		s.deadlines[e.deadline].at = at
		s.up(e.deadline)
	}
}

func (s *shard) removeDeadline(i uint32) {
	last := uint32(len(s.deadlines) - 1)
	s.swap(i, last)
	s.deadlines = s.deadlines[:last]
	if i < last {
		s.up(i)
		s.down(i)
	}
}

func (s *shard) up(i uint32) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.deadlines[parent].at <= s.deadlines[i].at {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *shard) down(i uint32) {
	for {
		child := 2*i + 1
		if child >= uint32(len(s.deadlines)) {
			return
		}
		if right := child + 1; right < uint32(len(s.deadlines)) && s.deadlines[right].at < s.deadlines[child].at {
			child = right
		}
		if s.deadlines[i].at <= s.deadlines[child].at {
			return
		}
		s.swap(i, child)
		i = child
	}
}

func (s *shard) swap(i, j uint32) {
	d := s.deadlines
	d[i], d[j] = d[j], d[i]
	s.entry(d[i].entry).deadline = i
	s.entry(d[j].entry).deadline = j
}
