package accesslog

import (
	"strconv"
	"strings"
	"time"
)

// maxTime is the end of the year 9999, in microseconds. Buckets calculate with the sum of a time and 142 years, and more
// digits are a mistake in a log.
const maxTime = 253402300800_000_000

// timeOf reads a time of a log into e.
func (p *parser) timeOf(text string, e *Entry) bool {
	if text == p.timeText && text != "" {
		e.Time = p.time
		return true
	}
	at, ok := parseTime(text)
	if !ok || at < 0 || at >= maxTime {
		return false
	}
	p.timeText, p.time, e.Time = text, at, at
	return true
}

// parseTime reads a time, in microseconds since 1970.
func parseTime(text string) (int64, bool) {
	switch {
	case len(text) < 1:
		return 0, false
	case len(text) > 10 && text[2] == '/':
		return clfTime(text)
	case len(text) > 10 && text[4] == '-':
		return isoTime(text)
	}
	return unixTime(text)
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// clfTime reads "10/Oct/2026:13:55:36 -0700".
func clfTime(s string) (int64, bool) {
	if len(s) < 26 || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' {
		return 0, false
	}
	month := strings.Index(months, s[3:6])
	if month < 0 || month%3 != 0 {
		return 0, false
	}
	zone := strings.LastIndexByte(s, ' ')
	if zone < 20 {
		return 0, false
	}
	return timeFrom(s[7:11], month/3+1, s[0:2], s[12:14], s[15:17], s[18:zone], s[zone+1:])
}

// isoTime reads "2026-10-10T13:55:36.123Z" (RFC 3339), also with a blank, and with an offset without a colon.
func isoTime(s string) (int64, bool) {
	if len(s) < 20 || s[4] != '-' || s[7] != '-' || s[10] != 'T' && s[10] != ' ' && s[10] != 't' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	month, ok := digits(s[5:7])
	if !ok {
		return 0, false
	}
	zone := 19 + strings.IndexAny(s[19:], "Zz+- ")
	if zone < 19 {
		return 0, false
	}
	return timeFrom(s[0:4], int(month), s[8:10], s[11:13], s[14:16], s[17:zone], strings.TrimPrefix(s[zone:], " "))
}

// timeFrom returns the time of the parts of a date. The seconds may have a fraction.
func timeFrom(year string, month int, day, hour, minute, seconds, zone string) (int64, bool) {
	y, ok1 := digits(year)
	d, ok2 := digits(day)
	h, ok3 := digits(hour)
	m, ok4 := digits(minute)
	if !ok1 || !ok2 || !ok3 || !ok4 || len(seconds) < 2 || month < 1 || month > 12 || h > 23 || m > 59 {
		return 0, false
	}
	s, ok1 := digits(seconds[:2])
	micros, ok2 := fraction(seconds[2:])
	offset, ok3 := offsetOf(zone)
	if !ok1 || !ok2 || !ok3 || s > 59 || d < 1 || int(d) > daysIn(int(y), month) {
		return 0, false
	}
	at := time.Date(int(y), time.Month(month), int(d), int(h), int(m), int(s), 0, time.UTC).Unix() - offset
	return at*1_000_000 + micros, true
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// fraction returns the microseconds of ".123456789", and 0 of "".
func fraction(s string) (micros int64, ok bool) {
	if s == "" {
		return 0, true
	}
	if len(s) < 2 || s[0] != '.' && s[0] != ',' {
		return 0, false
	}
	for i := 1; i < len(s) || i <= 6; i++ {
		digit := byte('0')
		if i < len(s) {
			digit = s[i]
		}
		if digit < '0' || digit > '9' {
			return 0, false
		}
		if i <= 6 {
			micros = 10*micros + int64(digit-'0')
		}
	}
	return micros, true
}

// offsetOf returns the seconds of "Z", "+0530", "+05:30" or "+05".
func offsetOf(s string) (int64, bool) {
	if s == "Z" || s == "z" {
		return 0, true
	}
	if len(s) < 3 || s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	h, ok := digits(s[1:3])
	rest := strings.TrimPrefix(s[3:], ":")
	var m int64
	if ok && rest != "" {
		m, ok = digits(rest)
		ok = ok && len(rest) == 2
	}
	if !ok || h > 23 || m > 59 || len(s) == 4 {
		return 0, false
	}
	if s[0] == '-' {
		return -(3600*h + 60*m), true
	}
	return 3600*h + 60*m, true
}

func digits(s string) (n int64, ok bool) {
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, s != ""
}

// unixTime reads a number of seconds, milliseconds, microseconds or nanoseconds since 1970. From 1973 to 5138 its size
// says which. Seconds may have a fraction.
func unixTime(s string) (int64, bool) {
	if strings.ContainsAny(s, "eE") { // some encoders of JSON write large numbers so
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f < 1e19) {
			return 0, false
		}
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	whole, rest, _ := strings.Cut(s, ".")
	n, ok := digits(whole)
	if !ok || len(whole) > 18+1 || n < 0 {
		return 0, false
	}
	var part int64
	if len(s) > len(whole) {
		if part, ok = fraction(s[len(whole):]); !ok && rest != "" {
			return 0, false
		}
	}
	switch {
	case n < 1e11:
		return n*1_000_000 + part, true
	case n < 1e14:
		return n*1000 + part/1000, true
	case n < 1e17:
		return n, true
	default:
		return n / 1000, true
	}
}
