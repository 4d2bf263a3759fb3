package adaptertest

import (
	"strings"
	"testing"
	"time"
)

// Without a limiter in the app each check fails. So does one whose adapter does nothing.
func TestEachCheckNeedsALimiter(t *testing.T) {
	f := Framework{
		Serve: func(t testing.TB, app App) string {
			app.Limiter = nil
			return serveChi(t, app)
		},
		Recovery: recovery,
		Gzip:     compress,
	}
	for _, c := range list(f) {
		if strings.HasPrefix(c.name, "successful logins: ") {
			continue
		}
		p := &probe{TB: t}
		p.do(func() { c.run(newEnv(p, f, 100*time.Millisecond)) })
		if !p.Failed() {
			t.Errorf("%s: passes without a limiter", c.name)
		}
	}
}

func TestALackThatIsNotOneFails(t *testing.T) {
	f := Framework{Serve: serveChi, Lacks: map[string]string{"denial": "it is said to be impossible"}}
	for _, c := range list(f) {
		p := &probe{TB: t}
		switch c.name {
		case "denial": // which chi does not lack
			p.do(func() { c.try(p, f) })
			if got := strings.Join(p.complaints, "\n"); !strings.Contains(got, "not one any more (it is said to be impossible)") {
				t.Errorf("a false lack: complaints %q", got)
			}
		case "FromContext in a logger outside": // which is no lack here, so that it fails
			p.do(func() { c.try(p, f) })
			if !p.Failed() {
				t.Error("a check without a Lack may fail")
			}
			f.Lacks[c.name] = "chi"
			p = &probe{TB: t}
			p.do(func() { c.try(p, f) })
			if p.Failed() {
				t.Errorf("a lack fails: %q", p.complaints)
			}
		}
	}
}
