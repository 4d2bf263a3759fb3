package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/promratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// A query is one of the dashboard or an alert.
type query struct {
	of, expr, legend string
}

const (
	dashboardFile = "../../contrib/promratelimit/dashboard.json"
	alertsFile    = "../../contrib/promratelimit/alerts.yml"
	alertsTests   = "../../contrib/promratelimit/testdata/alerts_test.yml"
	operations    = "../../docs/operations.md"
)

// The queries of the dashboard and the alerts name metrics and labels of a scrape, and legends labels that are left.
// Each metric is on the dashboard.
func TestQueriesNameMetrics(t *testing.T) {
	labels := map[string][]string{}
	for _, series := range newScrapes(t, 1)[0] {
		labels[series.name] = union(labels[series.name], slices.Collect(maps.Keys(series.labels)))
	}
	used := map[string]bool{}
	for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
		if err != nil {
			t.Errorf("%s: %v", q.of, err)
			continue
		}
		left, err := labelsOf(expr, labels, used)
		if err != nil {
			t.Errorf("%s: %s: %v", q.of, q.expr, err)
		}
		for _, label := range regexp.MustCompile(`{{ ?(?:\$labels\.)?(\w+) ?}}`).FindAllStringSubmatch(q.legend, -1) {
			if !slices.Contains(left, label[1]) {
				t.Errorf("%s: %s is no label of %s, which has %q", q.of, label[0], q.expr, left)
			}
		}
	}
	for name := range labels {
		family := regexp.MustCompile(`_(count|sum|bucket)$`).ReplaceAllString(name, "")
		if !used[name] && !used[family+"_bucket"] {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
	variables := regexp.MustCompile(`label_values\((\w+)(?:{.*?})?, (\w+)\)`).FindAllStringSubmatch(read(t, dashboardFile), -1)
	for _, v := range variables {
		if !slices.Contains(union(labels[v[1]], target), v[2]) {
			t.Errorf("%s: no such label", v[0])
		}
	}
	if len(variables) == 0 {
		t.Error("no variables")
	}
}

// target are the labels that Prometheus adds, and pod, which it adds in Kubernetes.
var target = []string{"instance", "job", "pod"}

// labelsOf returns the labels that series of expr may have, and an error if it names others.
func labelsOf(expr parser.Expr, of map[string][]string, used map[string]bool) ([]string, error) {
	within := func(labels, named []string) error {
		for _, label := range named {
			if !slices.Contains(labels, label) {
				return fmt.Errorf("no label %s: there are %q", label, labels)
			}
		}
		return nil
	}
	switch e := expr.(type) {
	case *parser.VectorSelector:
		labels, ok := of[e.Name]
		if !ok {
			return nil, fmt.Errorf("no metric %s", e.Name)
		}
		used[e.Name] = true
		labels = union(labels, target)
		for _, m := range e.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(labels, m.Name) {
				return nil, fmt.Errorf("%s has no label %s", e.Name, m.Name)
			}
		}
		return labels, nil
	case *parser.MatrixSelector:
		return labelsOf(e.VectorSelector, of, used)
	case *parser.ParenExpr:
		return labelsOf(e.Expr, of, used)
	case *parser.NumberLiteral:
		return nil, nil
	case *parser.Call:
		var all []string
		for _, arg := range e.Args {
			labels, err := labelsOf(arg, of, used)
			if err != nil {
				return nil, err
			}
			all = union(all, labels)
		}
		if e.Func.Name == "histogram_quantile" {
			if err := within(all, []string{"le"}); err != nil {
				return nil, err
			}
			all = slices.DeleteFunc(all, func(label string) bool { return label == "le" })
		}
		return all, nil
	case *parser.AggregateExpr:
		labels, err := labelsOf(e.Expr, of, used)
		if err != nil {
			return nil, err
		}
		if err := within(union(labels, nil), e.Grouping); err != nil {
			return nil, err
		}
		switch {
		case e.Op == parser.TOPK:
			return labels, nil
		case e.Without:
			return slices.DeleteFunc(slices.Clone(labels), func(label string) bool { return slices.Contains(e.Grouping, label) }), nil
		default:
			return e.Grouping, nil
		}
	case *parser.BinaryExpr:
		left, err := labelsOf(e.LHS, of, used)
		if err != nil {
			return nil, err
		}
		right, err := labelsOf(e.RHS, of, used)
		if err != nil {
			return nil, err
		}
		if e.VectorMatching != nil {
			if err := within(union(left, right), e.VectorMatching.MatchingLabels); err != nil {
				return nil, err
			}
		}
		return union(left, right), nil
	default:
		return nil, fmt.Errorf("%T: not known here", expr)
	}
}

// Each query gives a series when it is evaluated over three scrapes: those of alerts without their threshold.
func TestQueriesGiveSeries(t *testing.T) {
	promtool := needs(t, "promtool")
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type exprTest struct {
		Expr     string   `json:"expr"`
		EvalTime string   `json:"eval_time"`
		Samples  []sample `json:"exp_samples"`
	}
	type input struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	var inputs []input
	values := map[string][]string{}
	for i, scrape := range newScrapes(t, 3) {
		for _, series := range scrape {
			name := series.String()
			for len(values[name]) < i {
				values[name] = append(values[name], "_")
			}
			values[name] = append(values[name], strconv.FormatFloat(series.value, 'f', -1, 64))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		inputs = append(inputs, input{name, strings.Join(values[name], " ")})
	}
	var tests []exprTest
	for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, exprTest{fmt.Sprintf("count(%s) > bool 0", withoutThreshold(expr)), "2m", []sample{{"{}", 1}}})
	}
	file, err := json.Marshal(map[string]any{ // JSON is YAML
		"evaluation_interval": "1m",
		"tests":               []any{map[string]any{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if len(tests) < 60 {
		t.Errorf("only %d queries", len(tests))
	}
}

// withoutThreshold returns the expression that an alert compares with its threshold.
func withoutThreshold(expr parser.Expr) parser.Expr {
	switch e := expr.(type) {
	case *parser.BinaryExpr:
		if e.Op.IsComparisonOperator() {
			return withoutThreshold(e.LHS)
		}
		e.LHS, e.RHS = withoutThreshold(e.LHS), withoutThreshold(e.RHS)
	}
	return expr
}

func TestAlertRules(t *testing.T) {
	promtool := needs(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", alertsFile}, {"test", "rules", alertsTests}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	guide := read(t, operations)
	tests := read(t, alertsTests)
	for _, alert := range alerts(t) {
		if !strings.Contains(guide, "`"+alert.Alert+"`") {
			t.Errorf("%s is not in docs/operations.md", alert.Alert)
		}
		if !strings.Contains(tests, `alertname="`+alert.Alert+`"`) {
			t.Errorf("%s has no test", alert.Alert)
		}
		if a := alert.Annotations; a["summary"] == "" || a["description"] == "" || !strings.HasSuffix(a["runbook_url"], "/docs/operations.md#alert-rules") {
			t.Errorf("%s: annotations %v", alert.Alert, a)
		}
		if severity := alert.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s: severity %q", alert.Alert, severity)
		}
	}
	if !strings.Contains(guide, "\n### Alert rules\n") {
		t.Error("docs/operations.md has no section Alert rules")
	}
}

// Prometheus's own linter finds nothing in a scrape.
func TestScrapeLint(t *testing.T) {
	promtool := needs(t, "promtool")
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(newScraped(t).text(t))
	if out, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// dashboardQueries returns the queries of the panels as Grafana sends them when all is selected.
func dashboardQueries(t *testing.T) (queries []query) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	filled := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$policy", ".*", "$limiter", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries = append(queries, query{p.Title, filled.Replace(target.Expr), target.LegendFormat})
		}
	}
	return queries
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(read(t, alertsFile)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

func alertQueries(t *testing.T) (queries []query) {
	t.Helper()
	for _, a := range alerts(t) {
		queries = append(queries, query{a.Alert, a.Expr, a.Annotations["summary"]})
	}
	return queries
}

// A scraped is a limiter whose metrics are scraped.
type scraped struct {
	serve   http.Handler
	metrics *promratelimit.Collector
	stats   *changingStats
}

// changingStats is a Store with Stats of all parts, which grow with each scrape.
type changingStats struct {
	store.Store
	n int64
}

func (s *changingStats) Stats() store.Stats {
	s.n += 7
	n := int(s.n)
	memory := &store.MemoryStats{Buckets: n, Max: 1000, Bytes: s.n, Blocked: 1, Evicted: map[string]int64{"api": s.n}}
	return store.Stats{
		Redis: &store.RedisStats{
			Calls: s.n, Batches: s.n, Charges: s.n, Merged: s.n, Direct: s.n, Queued: n, OldestQueued: time.Millisecond, InFlight: 1,
			Errors: map[string]int64{"timeout": s.n, "canceled": 0}, Redirects: s.n, ScriptLoads: s.n,
		},
		Denials:  &store.DenialStats{Answered: s.n, Kept: n, Max: 1000},
		Leases:   &store.LeaseStats{Leases: n, Max: 1000, Held: s.n, Drawn: s.n, Returned: s.n, Lost: s.n},
		Fallback: &store.FallbackStats{Away: true, Since: time.Unix(1, 0), Probes: s.n, Answered: s.n, Charged: s.n, Pending: n, Max: 1000, Secondary: store.Stats{Memory: memory}},
		Memory:   memory,
	}
}

func newScraped(t *testing.T) *scraped {
	t.Helper()
	metrics := promratelimit.New(promratelimit.Config{})
	stats := &changingStats{Store: ratelimit.Must(memstore.New(memstore.Config{}))}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:   stats,
		Observe: metrics.Observe,
		Logger:  slog.New(slog.DiscardHandler),
		Policies: []ratelimit.Policy{
			{Name: "api", Key: ratelimit.Header("X-Key"), Limit: ratelimit.PerMinute(2)},
			{Name: "try", Key: ratelimit.Static("all"), Limit: ratelimit.PerMinute(1), Shadow: true},
			{Name: "llm", Key: ratelimit.Static("all"), Limit: ratelimit.PerMinute(1000), Settle: func(*http.Request, ratelimit.Response) int64 { return 3 }},
		},
	}))
	metrics.Add("main", limiter)
	metrics.AddCache("jwt", func() store.CacheStats {
		return store.CacheStats{Entries: 1, Max: 2, Hits: stats.n, Misses: stats.n, Evicted: stats.n}
	})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	return &scraped{mux, metrics, stats}
}

// text returns a scrape after a few requests.
func (s *scraped) text(t *testing.T) string {
	t.Helper()
	for _, key := range []string{"a", "a", "a", ""} {
		r := httptest.NewRequest("GET", "/items/5", nil)
		r.Header.Set("X-Key", key)
		s.serve.ServeHTTP(httptest.NewRecorder(), r)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.metrics)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", res.Status, err, text)
	}
	return string(text)
}

// A series is one of a scrape, with the labels of its target.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

func (s series) String() string {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		labels = append(labels, fmt.Sprintf("%s=%q", name, s.labels[name]))
	}
	return s.name + "{" + strings.Join(labels, ",") + "}"
}

// newScrapes returns the series of n scrapes of a limiter.
func newScrapes(t *testing.T, n int) (scrapes [][]series) {
	t.Helper()
	limited := newScraped(t)
	for range n {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(limited.text(t)))
		if err != nil {
			t.Fatal(err)
		}
		var all []series
		for name, family := range families {
			for _, m := range family.Metric {
				add := func(suffix string, value float64, extra ...string) {
					labels := map[string]string{"job": "service", "instance": "127.0.0.1:8080"}
					for _, l := range m.Label {
						labels[l.GetName()] = l.GetValue()
					}
					if len(extra) > 0 {
						labels[extra[0]] = extra[1]
					}
					all = append(all, series{name + suffix, labels, value})
				}
				switch family.GetType() {
				case dto.MetricType_COUNTER:
					add("", m.Counter.GetValue())
				case dto.MetricType_GAUGE:
					add("", m.Gauge.GetValue())
				case dto.MetricType_HISTOGRAM:
					add("_count", float64(m.Histogram.GetSampleCount()))
					add("_sum", m.Histogram.GetSampleSum())
					for _, b := range m.Histogram.Bucket {
						bound := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
						if math.IsInf(b.GetUpperBound(), 1) {
							bound = "+Inf"
						}
						add("_bucket", float64(b.GetCumulativeCount()), "le", bound)
					}
				default:
					t.Fatalf("%s is a %v", name, family.GetType())
				}
			}
		}
		scrapes = append(scrapes, all)
	}
	return scrapes
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
