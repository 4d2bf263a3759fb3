package promratelimit_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A dashboard has the fields of Grafana's classic dashboards that dashboard.json uses. A field that is misspelt is an
// unknown one.
type dashboard struct {
	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Description   string   `json:"description"`
	Tags          []string `json:"tags"`
	SchemaVersion int      `json:"schemaVersion"`
	Version       int      `json:"version"`
	Editable      bool     `json:"editable"`
	GraphTooltip  int      `json:"graphTooltip"`
	Refresh       string   `json:"refresh"`
	Timezone      string   `json:"timezone"`
	Time          struct{ From, To string }
	Annotations   struct{ List []struct{} }
	Links         []struct{}
	Templating    struct{ List []variable }
	Panels        []panel
}

type variable struct {
	Name       string          `json:"name"`
	Label      string          `json:"label"`
	Type       string          `json:"type"`
	Datasource *datasource     `json:"datasource"`
	Query      json.RawMessage `json:"query"`
	Definition string          `json:"definition"`
	Refresh    int             `json:"refresh"`
	Sort       int             `json:"sort"`
	Multi      bool            `json:"multi"`
	IncludeAll bool            `json:"includeAll"`
	AllValue   string          `json:"allValue"`
	Hide       int             `json:"hide"`
	Current    json.RawMessage `json:"current"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ H, W, X, Y int }
	Collapsed   *bool       `json:"collapsed"`
	Panels      []struct{}  `json:"panels"`
	Datasource  *datasource `json:"datasource"`
	FieldConfig struct {
		Defaults struct {
			Unit       string                `json:"unit"`
			Min        *float64              `json:"min"`
			NoValue    string                `json:"noValue"`
			Color      struct{ Mode string } `json:"color"`
			Thresholds struct {
				Mode  string
				Steps []struct {
					Color string   `json:"color"`
					Value *float64 `json:"value"`
				}
			} `json:"thresholds"`
			Custom struct {
				DrawStyle   string                       `json:"drawStyle"`
				LineWidth   int                          `json:"lineWidth"`
				FillOpacity int                          `json:"fillOpacity"`
				ShowPoints  string                       `json:"showPoints"`
				SpanNulls   bool                         `json:"spanNulls"`
				Stacking    struct{ Group, Mode string } `json:"stacking"`
			} `json:"custom"`
		} `json:"defaults"`
		Overrides []struct{} `json:"overrides"`
	} `json:"fieldConfig"`
	Options struct {
		Legend struct {
			Calcs       []string `json:"calcs"`
			DisplayMode string   `json:"displayMode"`
			Placement   string   `json:"placement"`
			ShowLegend  bool     `json:"showLegend"`
		} `json:"legend"`
		Tooltip       struct{ Mode, Sort string } `json:"tooltip"`
		ReduceOptions struct {
			Calcs  []string `json:"calcs"`
			Fields string   `json:"fields"`
			Values bool     `json:"values"`
		} `json:"reduceOptions"`
		ColorMode    string `json:"colorMode"`
		GraphMode    string `json:"graphMode"`
		JustifyMode  string `json:"justifyMode"`
		Orientation  string `json:"orientation"`
		TextMode     string `json:"textMode"`
		DisplayMode  string `json:"displayMode"`
		ShowUnfilled bool   `json:"showUnfilled"`
		ValueMode    string `json:"valueMode"`
	} `json:"options"`
	Targets []struct {
		RefID        string      `json:"refId"`
		Datasource   *datasource `json:"datasource"`
		EditorMode   string      `json:"editorMode"`
		Expr         string      `json:"expr"`
		LegendFormat string      `json:"legendFormat"`
		Range        bool        `json:"range"`
		Instant      bool        `json:"instant"`
	} `json:"targets"`
}

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
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	known := fieldNames(reflect.TypeFor[dashboard](), map[string]bool{})
	for _, key := range regexp.MustCompile(`(?m)^ *"(\w+)": `).FindAllStringSubmatch(string(file), -1) {
		// encoding/json does not look at upper case
		if !known[key[1]] && key[1] != "text" && key[1] != "value" && key[1] != "selected" {
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

// fieldNames adds the names that the fields of a type have in JSON.
func fieldNames(of reflect.Type, to map[string]bool) map[string]bool {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		fieldNames(of.Elem(), to)
	case reflect.Struct:
		for f := range of.Fields() {
			name := f.Tag.Get("json")
			if name == "" {
				name = strings.ToLower(f.Name[:1]) + f.Name[1:]
			}
			to[name] = true
			fieldNames(f.Type, to)
		}
	}
	return to
}
