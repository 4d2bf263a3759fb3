package report_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
)

// Whatever a report says, its forms are whole, safe and not too wide. All its texts are the one of the input, and all numbers
// are from its seed, which chooses the form.
func FuzzReport(f *testing.F) {
	for i, text := range hostileTexts {
		for form := range uint64(3) {
			f.Add(text, 3*uint64(i)+form)
		}
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		r := sample()
		random := rand.New(rand.NewPCG(seed, 2))
		if random.IntN(8) > 0 { // one is as good as several, and faster
			i := random.IntN(len(r.Policies))
			r.Policies = r.Policies[i : i+1]
		}
		p := &r.Policies[0]
		p.When = p.When[:min(len(p.When), random.IntN(60))]
		shake(reflect.ValueOf(r).Elem(), random)
		fill(reflect.ValueOf(r).Elem(), text)

		switch seed % 3 {
		case 0:
			columns := 40 + int(seed%97)
			got := textOf(t, r, false, columns)
			wantPrintable(t, got)
			wantNarrow(t, got, columns)
			if colored := textOf(t, r, true, columns); withoutColors(colored) != got {
				t.Errorf("with colors it says something else:\n%s", colored)
			}
		case 1:
			got := jsonOf(t, r)
			wantPrintable(t, got)
			var back report.Report
			if err := json.Unmarshal([]byte(got), &back); err != nil {
				t.Error(err)
			}
			if len(r.Files) > 0 && utf8.ValidString(text) && back.Files[0] != text {
				t.Errorf("read again, a file is %q", back.Files[0])
			}
		case 2:
			page := htmlOf(t, r)
			wantSelfContained(t, page)
			if !strings.Contains(text, "NaN") && !strings.Contains(text, "Inf") && (strings.Contains(page, "NaN") || strings.Contains(page, "Inf")) {
				t.Errorf("no number in\n%s", page)
			}
		}
	})
}
