package code_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A mailer sends mails at 80 percent, for all replicas.
type mailer struct {
	mu    sync.Mutex
	rows  map[string]bool
	down  bool // the database
	mails []string
}

func (m *mailer) firstWarning(_ context.Context, account string, ends time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return false, errors.New("the database is down")
	}
	row := fmt.Sprint(account, ends.Unix())
	first := !m.rows[row]
	m.rows[row] = true
	return first, nil
}

func (m *mailer) sendMail(_ context.Context, account, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails = append(m.mails, account+": "+text)
}

func mailAt80Percent(t *testing.T, buckets store.Store, account ratelimit.KeyFunc, m *mailer) (*ratelimit.Limiter, error) {
	firstWarning, sendMail := m.firstWarning, m.sendMail
	plan := ratelimit.Policy{Name: "plan", Key: account, Limit: ratelimit.Quota(100_000, ratelimit.Month)}
	warnings, err := observe.NewThreshold(observe.ThresholdConfig{
		Share:    0.8,
		Policies: []string{plan.Name},
		Passed: func(ctx context.Context, w observe.Warning) {
			// insert into warnings (account, month_ends) values ($1, $2) on conflict do nothing
			first, err := firstWarning(ctx, w.Key, w.Resets)
			if err != nil {
				log.Print(err) // two mails are better than none
			}
			if first || err != nil {
				sendMail(ctx, w.Key, fmt.Sprintf("%d of %d requests are used. The next month begins on %s.", w.Used, w.Limit.Rate, w.Resets.UTC().Format(time.DateOnly)))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	limiter, err := ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: []ratelimit.Policy{plan},
		Observe:  warnings.Observe, // with others: observe.Join
	})
	t.Cleanup(warnings.Close)
	return limiter, err
}

func TestRecipeMailAt80Percent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buckets := ratetest.NewStore()
		m := &mailer{rows: make(map[string]bool)}
		plan := ratelimit.Policy{Name: "plan", Limit: ratelimit.Quota(100_000, ratelimit.Month)}
		var replicas []*ratelimit.Limiter
		for range 3 {
			replicas = append(replicas, ratelimit.Must(mailAt80Percent(t, buckets, ratelimit.RemoteIP(), m)))
		}
		use := func(tokens int64) {
			for _, limiter := range replicas {
				if _, err := limiter.Take(t.Context(), plan, "account:7", tokens); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
		}
		for range 2 {
			use(20_000)
			use(10_000)
			use(1_000)
			time.Sleep(31 * 24 * time.Hour)
		}
		m.down = true
		use(30_000)
		if want := []string{
			"account:7: 80000 of 100000 requests are used. The next month begins on 2000-02-01.",
			"account:7: 80000 of 100000 requests are used. The next month begins on 2000-03-01.",
			"account:7: 90000 of 100000 requests are used. The next month begins on 2000-04-01.", // without the database
		}; !slices.Equal(m.mails, want) {
			t.Errorf("mails %q, want %q", m.mails, want)
		}
	})
}
