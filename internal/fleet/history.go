package fleet

import (
	"slices"
	"time"
)

// NewHistory returns the history of steps of a length that are over at a time. All replicas have the same steps, because they
// begin at multiples of their length.
func NewHistory(at time.Time, length time.Duration) *History {
	h := &History{Steps: Steps{Seconds: int(length / time.Second), End: at.Truncate(length).UTC()}}
	for _, list := range h.lists() {
		*list = make([]int64, HistorySteps)
	}
	return h
}

// Add adds what came at a time, if it is in one of the steps. h is one that NewHistory has made.
func (h *History) Add(at time.Time, c Counts) {
	before := h.End.Sub(at)
	i := HistorySteps - 1 - int64((before-1)/(time.Duration(h.Seconds)*time.Second))
	if before <= 0 || i < 0 {
		return
	}
	h.Allowed[i] += c.Allowed
	h.Denied[i] += c.Denied
	h.WouldDeny[i] += c.WouldDeny
	h.Refused[i] += c.Refused
}

// lists are the lists of h.
func (h *History) lists() [4]*[]int64 {
	return [4]*[]int64{&h.Allowed, &h.Denied, &h.WouldDeny, &h.Refused}
}

// longest returns the length of the longest list.
func (h *History) longest() (n int) {
	for _, list := range h.lists() {
		n = max(n, len(*list))
	}
	return n
}

// align fills lists up to HistorySteps counts at the beginning.
func (h *History) align() {
	for _, list := range h.lists() {
		if n := len(*list); n > 0 && n < HistorySteps {
			*list = slices.Concat(make([]int64, HistorySteps-n), *list)
		}
	}
}

// trimmed returns h without the zeros at the beginning of lists.
func (h Histories) trimmed() Histories {
	for _, history := range []**History{&h.TenMinutes, &h.Hour, &h.SixHours} {
		if *history == nil {
			continue
		}
		cut := **history
		for _, list := range cut.lists() {
			first := slices.IndexFunc(*list, func(n int64) bool { return n != 0 })
			if *list = (*list)[max(0, first):]; first < 0 {
				*list = nil
			}
		}
		*history = &cut
	}
	return h
}

// sum adds histories of each range.
func sum(of []Histories) Histories {
	var ten, hour, six []*History
	for _, h := range of {
		ten, hour, six = append(ten, h.TenMinutes), append(hour, h.Hour), append(six, h.SixHours)
	}
	return Histories{sumRange(ten), sumRange(hour), sumRange(six)}
}

// sumRange adds histories by time. The sum ends when the first of them ends, so that its last step is complete.
func sumRange(of []*History) *History {
	steps := make([]Steps, len(of))
	for i, h := range of {
		if h != nil {
			steps[i] = h.Steps
		}
	}
	common, later := commonSteps(steps)
	if common.Seconds == 0 {
		return nil
	}
	all := &History{Steps: common}
	for i, h := range of {
		if h == nil || h.Seconds != common.Seconds {
			all.Without++
			continue
		}
		for j, list := range all.lists() {
			*list = added(*list, moved(*h.lists()[j], later[i]))
		}
	}
	all.align()
	return all
}

// commonSteps returns the steps of a sum, and by how many steps each part ends later than the sum. The sum ends one step
// before the last part, if a part does. A part that ends earlier is that of a silent replica, for which the sum does not wait.
func commonSteps(of []Steps) (common Steps, later []int) {
	for _, s := range of {
		if common.Seconds == 0 || s.Seconds == common.Seconds && s.End.After(common.End) {
			common = s
		}
	}
	later = make([]int, len(of))
	if common.Seconds == 0 {
		return common, later
	}
	step := time.Duration(common.Seconds) * time.Second
	for i, s := range of {
		if s.Seconds == common.Seconds {
			later[i] = int(max(-maxList, s.End.Sub(common.End).Round(step)/step))
		}
	}
	if slices.Contains(later, -1) {
		common.End = common.End.Add(-step)
		for i := range later {
			later[i]++
		}
	}
	return common, later
}

// moved returns counts without those of the last steps, or with zeros for steps that are missing, if later is negative.
func moved(counts []int64, later int) []int64 {
	switch {
	case later <= -len(counts) || later >= len(counts):
		return nil
	case later < 0:
		return slices.Concat(counts[-later:], make([]int64, -later))
	}
	return counts[:len(counts)-later]
}

// added adds counts whose last steps are the same.
func added(a, b []int64) []int64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	sum := slices.Clone(a)
	for i, n := range b {
		sum[len(a)-len(b)+i] += n
	}
	return sum
}
