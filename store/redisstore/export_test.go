package redisstore

// Slot is slot.
var Slot = slot

// ForgetRefusals has s take the next call over several slots at once.
func ForgetRefusals(s *Store) {
	for i := range s.engine.caution.until {
		s.engine.caution.until[i].Store(0)
	}
}

// ParseBucket is parseBucket.
var ParseBucket = parseBucket
