package observe

import "math"

// counters is the number of keys that a summary counts. A key is counted if it makes more than a part of
// 1/counters, 0.78 %, of what the summary has seen. To find each key of 1 % it must be above 100.
const counters = 128

// A summary counts how often the most frequent keys come, in bounded space. It is a Space-Saving summary: Metwally,
// Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005. A key that is
// not counted takes the place of the one with the lowest count, and takes over its count, as what it may have too much.
//
// So the true count of a key is in [count−extra, count], and that of a key that is not counted is at most least().
// The sum of the counts is what the summary has seen, so least() is at most seen()/counters.
//
// The zero value is empty.
type summary struct {
	used   int                 // how many of the arrays below are used
	first  [4 * counters]uint8 // the counters of the keys with a hash, as a list: 1 more than the first of them
	behind [counters]uint8     // 1 more than the one behind it
	hash   [counters]uint64
	count  [counters]uint32 // of 12 minutes at most
	extra  [counters]uint32
	parts  [counters][parts]tally // count-extra, by the parts of a step
	key    [counters][]byte       // its memory is used again
	whole  [counters]bool         // or key is a name of the key

	// All counts are at least lowest, and those before next are above it.
	lowest uint32
	next   int
}

// A tally counts the requests of a key in a part of a step, and those that were denied.
type tally struct{ requests, denied uint32 }

const noCounter = -1

// add counts a key in a part of the step, of which kept is kept if it is new. It returns the tally of the part.
func (s *summary) add(part int, hash uint64, kept string, whole, denied bool) tally {
	i := s.find(hash)
	if i == noCounter {
		i = s.enter(hash)
		s.key[i], s.whole[i] = append(s.key[i][:0], kept...), whole
	}
	s.count[i]++
	in := &s.parts[i][part]
	requests, denials := in.requests+1, in.denied
	in.requests = requests
	if denied {
		denials++
		in.denied = denials
	}
	return tally{requests, denials}
}

// seen returns how many requests were counted.
func (s *summary) seen() (n int64) {
	for _, count := range s.count {
		n += int64(count)
	}
	return n
}

// denials returns how many of count-extra requests were denied.
func (s *summary) denials(counter int) (n int64) {
	for _, in := range s.parts[counter] {
		n += int64(in.denied)
	}
	return n
}

// find returns the counter of a key, or noCounter.
func (s *summary) find(hash uint64) int {
	for at := *s.list(hash); at != 0; at = s.behind[at-1] {
		if s.hash[at-1] == hash {
			return int(at - 1)
		}
	}
	return noCounter
}

func (s *summary) list(hash uint64) *uint8 { return &s.first[hash%uint64(len(s.first))] }

// enter gives a counter to a key that has none.
func (s *summary) enter(hash uint64) int {
	i := s.used
	if i < counters {
		s.used++
	} else {
		i = s.leastUsed()
		s.leave(i)
		s.extra[i] = s.count[i]
		s.parts[i] = [parts]tally{}
	}
	s.hash[i] = hash
	list := s.list(hash)
	s.behind[i], *list = *list, uint8(i+1)
	return i
}

// leave takes a counter from its list.
func (s *summary) leave(i int) {
	at := s.list(s.hash[i])
	for *at != uint8(i+1) {
		at = &s.behind[*at-1]
	}
	*at = s.behind[i]
}

// leastUsed returns a counter with the lowest count. All counters are used.
func (s *summary) leastUsed() int {
	for {
		for ; s.next < counters; s.next++ {
			if s.count[s.next] == s.lowest {
				return s.next
			}
		}
		s.lowest, s.next = s.least(), 0
	}
}

// least returns the highest count that a key without a counter can have. It is 0 while a counter is not used.
func (s *summary) least() uint32 {
	least := uint32(math.MaxUint32)
	for _, n := range s.count {
		least = min(least, n)
	}
	return least
}

// reset empties s. The memory of the keys is kept for others.
func (s *summary) reset() { *s = summary{key: s.key} }

// keySize returns the size of all keys in bytes.
func (s *summary) keySize() (size int) {
	for _, key := range s.key[:s.used] {
		size += len(key)
	}
	return size
}

// copyTo copies s without the keys to another summary, and the keys to texts, one after the other.
func (s *summary) copyTo(to *summary, texts []byte) []byte {
	key := to.key
	*to = *s
	to.key = key
	for i := range s.used {
		from := len(texts)
		texts = append(texts, s.key[i]...)
		to.key[i] = texts[from:len(texts):len(texts)]
	}
	return texts
}
