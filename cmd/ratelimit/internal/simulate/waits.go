package simulate

import (
	"math"
	"slices"
	"time"
)

// waits are the times for which requests waited. The median is exact up to a number of waits, and right to 1 % beyond it.
type waits struct {
	count   int64
	longest time.Duration
	few     []time.Duration
	scale   map[int16]int64
}

const fewWaits = 1 << 16

// steps is how many steps of the scale double a time.
const steps = 64

func (w *waits) add(d time.Duration) {
	w.count++
	w.longest = max(w.longest, d)
	if len(w.few) < fewWaits {
		w.few = append(w.few, d)
	}
	if w.scale == nil {
		w.scale = make(map[int16]int64)
	}
	w.scale[int16(math.Log2(float64(d))*steps)]++
}

func (w *waits) median() time.Duration {
	if w.count == 0 {
		return 0
	}
	if w.count == int64(len(w.few)) {
		slices.Sort(w.few)
		return w.few[(len(w.few)-1)/2]
	}
	marks := make([]int16, 0, len(w.scale))
	for mark := range w.scale {
		marks = append(marks, mark)
	}
	slices.Sort(marks)
	var passed int64
	for _, mark := range marks {
		if passed += w.scale[mark]; 2*passed >= w.count {
			return min(w.longest, time.Duration(math.Exp2((float64(mark)+0.5)/steps)))
		}
	}
	return w.longest
}
