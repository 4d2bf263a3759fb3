package numbers

import (
	"math"
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(int64(1000)), "1,000"},
		{Count(uint64(math.MaxUint64)), "18,446,744,073,709,551,615"},
		{Count(-999), "−999"},
		{Count(-1234567), "−1,234,567"},
		{Count(int64(math.MinInt64)), "−9,223,372,036,854,775,808"},
		{Of(0, "client"), "0 clients"},
		{Of(1, "client"), "1 client"},
		{Of(1200, "client"), "1,200 clients"},
		{Share(0), "0 %"},
		{Share(1e-9), "<0.01 %"},
		{Share(0.0001), "0.01 %"},
		{Share(0.00994), "0.99 %"},
		{Share(0.00996), "1.0 %"},
		{Share(0.075), "7.5 %"},
		{Share(0.0996), "10 %"},
		{Share(0.994), "99 %"},
		{Share(0.9951), "99.5 %"},
		{Share(0.9995), ">99.9 %"},
		{Share(1), "100 %"},
		{Percent(0.999), "99.9 %"},
		{Percent(0.07), "7 %"},
		{Size(1), "1 byte"},
		{Size(9999), "9,999 bytes"},
		{Size(10_000), "10 KB"},
		{Size(9_999_999), "9,999 KB"},
		{Size(47_000_000), "47 MB"},
		{Span(0), "0 s"},
		{Span(99 * time.Microsecond), "<0.1 ms"},
		{Span(400 * time.Microsecond), "0.4 ms"},
		{Span(1001 * time.Microsecond), "1.1 ms"},
		{Span(99_900 * time.Microsecond), "99.9 ms"},
		{Span(99_901 * time.Microsecond), "0.1 s"},
		{Span(3 * time.Second), "3 s"},
		{Span(3201 * time.Millisecond), "3.3 s"},
		{Span(9901 * time.Millisecond), "10 s"},
		{Span(10*time.Second + 1), "11 s"},
		{Span(119 * time.Second), "119 s"},
		{Span(119*time.Second + 1), "2 min"},
		{Span(14*time.Minute + 19*time.Second + 1), "14 min 20 s"},
		{Span(2*time.Hour - time.Second), "119 min 59 s"},
		{Span(2*time.Hour - 1), "2 h"},
		{Span(48*time.Hour - time.Minute), "47 h 59 min"},
		{Span(48*time.Hour - time.Second), "2 d"},
		{Span(76 * time.Hour), "3 d 4 h"},
		{Span(-90 * time.Second), "−90 s"},
		{Span(math.MinInt64), "−106,752 d"},
		{Span(math.MaxInt64), "106,752 d"},
		{Seconds(0.35), "0.4 s"},
		{Seconds(-1), "0 s"},
		{Seconds(1e300), "106,752 d"},
		{Short(15 * time.Minute), "15m"},
		{Short(24 * time.Hour), "24h"},
		{Short(90 * time.Minute), "1h30m"},
		{Short(30 * time.Second), "30s"},
		{Short(10 * time.Hour), "10h"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
