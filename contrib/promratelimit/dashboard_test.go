package promratelimit_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A dashboard is what the test reads of dashboard.json.
type dashboard struct {
	UID           string
	Title         string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Label, Type string
			Datasource        *datasource
			Query             json.RawMessage
		}
	}
	Panels []panel
}

type datasource struct{ Type, UID string }

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               *datasource
	FieldConfig              struct {
		Defaults struct{ Unit, NoValue string }
	}
	Targets []struct {
		RefID, Expr    string
		Datasource     *datasource
		Range, Instant bool
	}
}

// Grafana ignores fields that it does not know, such as one that is misspelt. These are all that the dashboard uses.
const fields = `allValue annotations calcs collapsed color colorMode current custom datasource defaults definition description displayMode
	drawStyle editable editorMode expr fieldConfig fields fillOpacity from graphMode graphTooltip gridPos group h hide id includeAll instant
	justifyMode label legend legendFormat lineWidth links list min mode multi name noValue options orientation overrides panels placement
	query range reduceOptions refId refresh schemaVersion selected showLegend showPoints showUnfilled sort spanNulls stacking steps tags
	targets templating text textMode thresholds time timezone title to tooltip type uid unit value valueMode values version w x y`

// The panels of the kinds that are used, with the units that Grafana knows for them.
var (
	panelTypes = []string{"row", "stat", "timeseries", "bargauge"}
	units      = []string{"short", "reqps", "ops", "percentunit", "s", "bytes"}
)

// The dashboard can be provisioned as it is: it has an identity, asks for nothing, and takes its data source from a
// variable. (The module test/conformance looks at its queries.)
func TestDashboard(t *testing.T) {
	file, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(file, &d); err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(fields)
	for _, key := range regexp.MustCompile(`(?m)^ *"(\w+)": `).FindAllStringSubmatch(string(file), -1) {
		if !slices.Contains(known, key[1]) {
			t.Errorf("no field is called %s", key[1])
		}
	}
	if d.UID != "ratelimit" || d.Title == "" || d.SchemaVersion < 36 || d.SchemaVersion > 41 || bytes.Contains(file, []byte("__inputs")) {
		t.Errorf("uid %q, title %q, schemaVersion %d: cannot be provisioned", d.UID, d.Title, d.SchemaVersion)
	}
	fromVariable := func(s *datasource) bool { return s != nil && *s == datasource{"prometheus", "${datasource}"} }
	variables := map[string]bool{"__rate_interval": true}
	for i, v := range d.Templating.List {
		if v.Name == "" || v.Label == "" || variables[v.Name] || (i == 0) != (v.Type == "datasource") || i > 0 && (v.Type != "query" || !fromVariable(v.Datasource) || len(v.Query) == 0) {
			t.Errorf("variable %d: %+v", i, v)
		}
		variables[v.Name] = true
	}
	ids := map[int]bool{}
	used := regexp.MustCompile(`\$(\w+)`)
	var taken []panel
	for _, p := range d.Panels {
		at := p.GridPos
		if p.ID <= 0 || ids[p.ID] || p.Title == "" || !slices.Contains(panelTypes, p.Type) {
			t.Errorf("panel %d %q, a %s: no or no own id or title, or another type", p.ID, p.Title, p.Type)
		}
		ids[p.ID] = true
		if at.W <= 0 || at.H <= 0 || at.X < 0 || at.Y < 0 || at.X+at.W > 24 {
			t.Errorf("%s: %+v is not on the grid", p.Title, at)
		}
		for _, other := range taken {
			o := other.GridPos
			if at.X < o.X+o.W && o.X < at.X+at.W && at.Y < o.Y+o.H && o.Y < at.Y+at.H {
				t.Errorf("%s lies on %s", p.Title, other.Title)
			}
		}
		taken = append(taken, p)
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || !slices.Contains(units, p.FieldConfig.Defaults.Unit) || !fromVariable(p.Datasource) || len(p.Targets) == 0 {
			t.Errorf("%s: no description, unit, data source or query", p.Title)
		}
		if p.FieldConfig.Defaults.NoValue == "0" {
			t.Errorf("%s: shows 0 where nothing is scraped", p.Title)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.Expr == "" || !fromVariable(q.Datasource) || q.Range == q.Instant {
				t.Errorf("%s: query %+v", p.Title, q)
			}
			refs[q.RefID] = true
			for _, v := range used.FindAllStringSubmatch(q.Expr, -1) {
				if !variables[v[1]] {
					t.Errorf("%s: %s: no variable %s", p.Title, q.Expr, v[0])
				}
			}
			if strings.Contains(q.Expr, "ratelimit_") && !strings.Contains(q.Expr, "$job") {
				t.Errorf("%s: %s: of all jobs", p.Title, q.Expr)
			}
		}
	}
}
