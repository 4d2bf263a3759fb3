package otelratelimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// traced is what otelhttp does: it starts a span around h, and ends it after h.
func traced(tracer trace.Tracer, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), "request", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// spans returns the spans that ended, as text: the attributes, and a line for each event.
func spans(recorder *tracetest.SpanRecorder) []string {
	var all []string
	for _, s := range recorder.Ended() {
		text := attrsText(s.Attributes())
		for _, e := range s.Events() {
			text += "\n" + e.Name + ": " + attrsText(e.Attributes)
		}
		all = append(all, text)
	}
	return all
}

func TestSpans(t *testing.T) {
	shadow := keyed("trial", ratelimit.PerHour(1))
	shadow.Shadow = true
	slow := keyed("slow", ratelimit.Every(time.Second))
	slow.MaxWait = time.Minute
	settled := keyed("llm", ratelimit.PerHour(100))
	settled.Cost = func(*http.Request) int64 { return 7 }
	settled.Settle = func(*http.Request, ratelimit.Response) int64 { return 3 }
	closed := keyed("api", ratelimit.PerHour(1))
	closed.FailClosed = true

	costly, hidden := keyed("api", ratelimit.PerHour(1)), keyed("hidden", ratelimit.PerHour(1))
	costly.Cost = func(*http.Request) int64 { return 2 }
	hidden.Hidden = true
	api := func(n int64) ratelimit.Policy { return keyed("api", ratelimit.PerHour(n)) }
	type policies = []ratelimit.Policy
	limit := func(outer policies, inner ...ratelimit.Policy) func(*ratelimit.Limiter) http.Handler {
		return func(l *ratelimit.Limiter) http.Handler {
			h := http.Handler(ok)
			if len(inner) > 0 {
				h = l.Limit(inner...)(h)
			}
			return l.Limit(outer...)(h)
		}
	}
	const (
		allowed    = "ratelimit.operation=request ratelimit.outcome=allowed ratelimit.allowed=true ratelimit.policy="
		denied     = "ratelimit.operation=request ratelimit.outcome=denied ratelimit.allowed=false ratelimit.policy="
		deniedOnce = "\nratelimit.denied: ratelimit.operation=request ratelimit.policy="
		perHour    = " ratelimit.limit=1/1h ratelimit.cost=1 ratelimit.retry_after=3600"
	)
	for _, tt := range []struct {
		name  string
		mount func(*ratelimit.Limiter) http.Handler
		n     int
		want  string // of the last span

		noKey, breaks, withKey bool // breaks: the store
	}{
		{name: "Allowed", mount: limit(policies{api(10)}), n: 2, want: allowed + "api ratelimit.remaining=8"},
		{
			name: "Denied", mount: limit(policies{api(1)}), n: 2,
			want: denied + "api ratelimit.remaining=0" + deniedOnce + "api" + perHour,
		},
		{
			name: "A cost above the burst, which is never allowed", mount: limit(policies{costly}), n: 1,
			want: denied + "api ratelimit.remaining=1" + deniedOnce + "api ratelimit.limit=1/1h ratelimit.cost=2",
		},
		{
			name: "A Shadow", mount: limit(policies{shadow, api(10)}), n: 2,
			want: allowed + "api ratelimit.remaining=8\nratelimit.would_deny: ratelimit.operation=request ratelimit.policy=trial" + perHour,
		},
		{
			name: "A Hidden policy is not hidden here", mount: limit(policies{hidden, api(10)}), n: 1,
			want: allowed + "hidden ratelimit.remaining=0",
		},
		{
			name: "It waited", mount: limit(policies{slow}), n: 2,
			want: allowed + "slow ratelimit.remaining=0 ratelimit.time_in_queue=1",
		},
		{
			name: "Stacked limiters, the outer one is nearer to its limit", n: 2,
			mount: limit(policies{keyed("outer", ratelimit.PerHour(3))}, keyed("inner", ratelimit.PerHour(9))),
			want:  allowed + "outer ratelimit.remaining=1",
		},
		{
			name: "Stacked limiters, the inner one denies", n: 2,
			mount: limit(policies{keyed("outer", ratelimit.PerHour(3))}, keyed("inner", ratelimit.PerHour(1))),
			want:  denied + "inner ratelimit.remaining=0" + deniedOnce + "inner" + perHour,
		},
		{
			name: "Settled", mount: limit(policies{settled}), n: 1,
			want: allowed + "llm ratelimit.remaining=93\nratelimit.settled: ratelimit.policy=llm ratelimit.estimate=7 ratelimit.cost=3",
		},
		{
			name: "No key", mount: limit(policies{api(1)}), n: 1, noKey: true,
			want: "ratelimit.operation=request ratelimit.outcome=no_key ratelimit.allowed=false",
		},
		{
			name: "The store failed, and the request is let through", mount: limit(policies{api(1)}), n: 1, breaks: true,
			want: "ratelimit.operation=request ratelimit.outcome=failed_open ratelimit.allowed=true",
		},
		{
			name: "The store failed, and the request is refused", mount: limit(policies{closed}), n: 1, breaks: true,
			want: "ratelimit.operation=request ratelimit.outcome=failed_closed ratelimit.allowed=false",
		},
		{
			name: "Calls without a request, with the context of the handler", n: 1,
			mount: func(l *ratelimit.Limiter) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					for range 2 {
						l.Take(r.Context(), ratelimit.Policy{Name: "mail", Limit: ratelimit.PerHour(1)}, canary, 1)
					}
					l.Peek(r.Context(), ratelimit.Policy{Name: "mail", Limit: ratelimit.PerHour(1)}, canary) // is not a decision
				})
			},
			want: "ratelimit.operation=take ratelimit.outcome=denied ratelimit.allowed=false ratelimit.policy=mail ratelimit.remaining=0\n" +
				"ratelimit.denied: ratelimit.operation=take ratelimit.policy=mail" + perHour,
		},
		{
			name: "A key as an HMAC", mount: limit(policies{api(1), settled}), n: 1, withKey: true,
			want: allowed + "api ratelimit.remaining=0 ratelimit.key=KEY\n" +
				"ratelimit.settled: ratelimit.policy=llm ratelimit.estimate=7 ratelimit.cost=3 ratelimit.key=KEY",
		},
		{
			name: "A denied key as an HMAC", mount: limit(policies{api(1)}), n: 2, withKey: true,
			want: denied + "api ratelimit.remaining=0 ratelimit.key=KEY" + deniedOnce + "api ratelimit.limit=1/1h ratelimit.cost=1 ratelimit.key=KEY ratelimit.retry_after=3600",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := tracetest.NewSpanRecorder()
				tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("")
				cfg := otelratelimit.Config{MeterProvider: provider(t)}
				if tt.withKey {
					cfg.KeySecret = slices.Clone(secret)
				}
				stored := &broken{Store: ratelimit.Must(memstore.New(memstore.Config{}))}
				stored.now.Store(tt.breaks)
				key := ""
				remember := func(_ context.Context, e *ratelimit.Event) {
					for _, r := range e.Results {
						key = r.Key
					}
				}
				l := newLimiter(t, ratelimit.Config{Store: stored, Observe: observe.Join(newObserver(t, cfg).Observe, remember)})
				clear(cfg.KeySecret) // has no effect
				h, sent := traced(tracer, tt.mount(l)), canary
				if tt.noKey {
					sent = ""
				}
				for range tt.n {
					get(h, t.Context(), "GET", "/"+canary, sent)
				}
				all := spans(recorder)
				if len(all) != tt.n {
					t.Fatalf("%d spans, want %d", len(all), tt.n)
				}
				got := all[tt.n-1]
				want := strings.ReplaceAll(tt.want, "KEY", loggedKey(t, key))
				if got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				if strings.Contains(fmt.Sprint(all), canary) {
					t.Errorf("a text of a request is in %q", all)
				}
			})
		})
	}
}

var secret = []byte("0123456789abcdef")

// loggedKey returns how LogDenials shows a key.
func loggedKey(t *testing.T, key string) string {
	t.Helper()
	var line strings.Builder
	log := observe.LogDenials(observe.LogConfig{Logger: slog.New(slog.NewTextHandler(&line, nil)), KeySecret: secret})
	log(t.Context(), &ratelimit.Event{Op: "take", Results: []ratelimit.Result{{Policy: "api", Key: key}}})
	_, after, _ := strings.Cut(line.String(), " key=")
	shown, _, _ := strings.Cut(after, " ")
	return shown
}

// The span of a job has what its calls came to.
func TestASpanOfAWorker(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("")
	l := newLimiter(t, ratelimit.Config{Observe: newObserver(t, otelratelimit.Config{MeterProvider: provider(t)}).Observe})
	ctx, span := tracer.Start(t.Context(), "job")
	if _, err := l.Wait(ctx, ratelimit.Policy{Name: "mail", Limit: ratelimit.PerHour(5)}, canary, 2); err != nil {
		t.Fatal(err)
	}
	span.End()
	if got, want := spans(recorder), []string{"ratelimit.operation=wait ratelimit.outcome=allowed ratelimit.allowed=true ratelimit.policy=mail ratelimit.remaining=3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What the stores say of a decision and of a settlement that failed is on the span, too.
func TestSpansOfEvents(t *testing.T) {
	blocked := ratelimit.Result{Policy: "api", Key: canary, Limit: ratelimit.PerHour(1), Cost: 1}
	blocked.Blocked, blocked.Degraded, blocked.RetryAfter = true, true, 1500*time.Millisecond
	trial := ratelimit.Result{Policy: "trial", Shadow: true}
	for _, tt := range []struct {
		event ratelimit.Event
		want  string
	}{
		{
			ratelimit.Event{Op: "decide", Results: []ratelimit.Result{trial, blocked}},
			"ratelimit.operation=decide ratelimit.outcome=denied ratelimit.allowed=false ratelimit.policy=api ratelimit.remaining=0 ratelimit.degraded=true\n" +
				"ratelimit.would_deny: ratelimit.operation=decide ratelimit.policy=trial ratelimit.limit=0/0s ratelimit.cost=0 ratelimit.retry_after=0\n" +
				"ratelimit.denied: ratelimit.operation=decide ratelimit.policy=api ratelimit.limit=1/1h ratelimit.cost=1 ratelimit.retry_after=1.5 ratelimit.blocked=true",
		},
		{
			ratelimit.Event{Op: "settle", Allowed: true, Results: []ratelimit.Result{{Policy: "llm", Cost: 9}}, Estimates: []int64{2}, Err: fmt.Errorf("%s: %w", canary, context.DeadlineExceeded)},
			"\nratelimit.settled: ratelimit.policy=llm ratelimit.estimate=2 ratelimit.cost=9 ratelimit.failed=true",
		},
		{
			ratelimit.Event{Op: "request", Err: fmt.Errorf("%s: %w", canary, ratelimit.ErrBadRequest)},
			"ratelimit.operation=request ratelimit.outcome=bad_request ratelimit.allowed=false",
		},
		{
			ratelimit.Event{Op: "take", Err: fmt.Errorf("%s: %w", canary, store.ErrOverloaded)},
			"ratelimit.operation=take ratelimit.outcome=overloaded ratelimit.allowed=false",
		},
		{
			ratelimit.Event{Op: "wait", Err: context.Canceled},
			"ratelimit.operation=wait ratelimit.outcome=canceled ratelimit.allowed=false",
		},
		{ratelimit.Event{Op: "block", Results: []ratelimit.Result{blocked}}, ""},
	} {
		recorder := tracetest.NewSpanRecorder()
		ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("").Start(t.Context(), "")
		newObserver(t, otelratelimit.Config{MeterProvider: provider(t)}).Observe(ctx, &tt.event)
		span.End()
		if got := spans(recorder)[0]; got != tt.want {
			t.Errorf("got\n%s\nwant\n%s", got, tt.want)
		}
	}
}

// Other observers get the Event, too. They may want to know what is Hidden from clients.
func TestAnEventIsNotChanged(t *testing.T) {
	e := &ratelimit.Event{Op: "request", Allowed: true, Results: []ratelimit.Result{{Policy: "api", Hidden: true}}}
	ctx, span := sdktrace.NewTracerProvider().Tracer("").Start(t.Context(), "")
	newObserver(t, otelratelimit.Config{MeterProvider: provider(t)}).Observe(ctx, e)
	span.End()
	if !e.Results[0].Hidden {
		t.Error("a Hidden result is not Hidden any more")
	}
}

// A span that is not recording is not touched: neither its attributes nor the HMAC of a key are made.
func TestASpanThatIsNotRecording(t *testing.T) {
	o := newObserver(t, otelratelimit.Config{MeterProvider: provider(t), KeySecret: secret})
	span := &untouched{t: t}
	ctx := trace.ContextWithSpan(t.Context(), span)
	e := &ratelimit.Event{Op: "request", Results: []ratelimit.Result{{Policy: "api", Key: canary}}}
	o.Observe(ctx, e)
	settled := &ratelimit.Event{Op: "settle", Results: e.Results, Estimates: []int64{1}}
	o.Observe(ctx, settled)
	if n := testing.AllocsPerRun(100, func() { o.Observe(ctx, e) }); n != 0 {
		t.Errorf("%v allocations for a denial without a trace", n)
	}
}

type untouched struct {
	trace.Span
	t *testing.T
}

func (*untouched) IsRecording() bool              { return false }
func (*untouched) SpanContext() trace.SpanContext { return trace.SpanContext{} }
