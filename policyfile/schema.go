package policyfile

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A schema is a JSON Schema, which describes a value of a file for an editor.
type schema map[string]any

// Schema returns a JSON Schema (draft 2020-12) of files, for editors that complete and check them. Names of functions are
// those of reg, with [Registry.Unknown]. If reg has no name at all, a file may use any name.
//
// [Parse] takes no file that the schema refuses, except for values that are quoted or not quoted against their type, such as
// "true". It also checks what no schema can: repeated names, patterns that conflict, time zones, the range of a limit, and
// fields that exclude each other.
func Schema(reg Registry) []byte {
	anyName := len(reg.Keys)+len(reg.Limits)+len(reg.Costs)+len(reg.Settles)+len(reg.Unknown) == 0
	names := func(registered, builtIn []string) schema {
		if anyName {
			return schema{"type": "string", "minLength": 1}.suggest(builtIn)
		}
		all := append([]string{}, slices.Concat(registered, builtIn, reg.Unknown)...) // no null in JSON
		slices.Sort(all)
		return schema{"enum": slices.Compact(all)}
	}
	keys := names(slices.Collect(maps.Keys(reg.Keys)), wordsOfKeys)
	if anyName {
		keys["not"] = schema{"enum": fieldNames(keyForms)}
	}
	forms := fewest(1, mapping(keyForms))
	forms["maxProperties"] = 1
	file := mapping(fileFields, "version", "policies")
	file["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	file["title"] = "Policies of package ratelimit"
	policy := mapping(policyFields, "name", "key")
	policy["anyOf"] = []schema{{"required": []string{"limit"}}, {"required": []string{"limit_func"}}}
	file["$defs"] = schema{
		"policy":  policy,
		"key":     schema{"anyOf": []schema{keys, forms}},
		"limits":  names(slices.Collect(maps.Keys(reg.Limits)), nil),
		"costs":   names(slices.Collect(maps.Keys(reg.Costs)), nil),
		"settles": names(slices.Collect(maps.Keys(reg.Settles)), []string{"failed_logins"}),
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	return append(text, '\n')
}

// A field is one of a mapping.
type field struct {
	name   string
	values schema
}

func (f field) described() field { return f }

// A described is a field, with how Parse reads it.
type described interface{ described() field }

// mapping returns the schema of a mapping that has no other fields.
func mapping[F described](fields []F, required ...string) schema {
	properties := make(schema)
	for _, f := range fields {
		properties[f.described().name] = f.described().values
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// fieldNames returns the names of fields.
func fieldNames[F described](fields []F) (names []string) {
	for _, f := range fields {
		names = append(names, f.described().name)
	}
	return names
}

// about adds what an editor says of a value.
func (s schema) about(text string, examples ...string) schema {
	s["description"] = text
	return s.suggest(examples)
}

// suggest adds values that an editor completes.
func (s schema) suggest(examples []string) schema {
	if len(examples) > 0 {
		s["examples"] = examples
	}
	return s
}

func text(pattern string) schema    { return schema{"type": "string", "pattern": "^(" + pattern + ")$"} }
func flag() schema                  { return schema{"type": "boolean", "default": false} }
func route() schema                 { return text(routePattern).about("A pattern of the router.", "GET /items/{id}") }
func listOf(s schema) schema        { return schema{"type": "array", "items": s} }
func oneOrMore(s schema) schema     { return schema{"type": "array", "items": s, "minItems": 1} }
func definition(name string) schema { return schema{"$ref": "#/$defs/" + name} }

// unique refuses a list that has an item twice.
func unique(s schema) schema {
	s["uniqueItems"] = true
	return s
}

// fewest refuses a mapping with fewer than n fields.
func fewest(n int, s schema) schema {
	s["minProperties"] = n
	return s
}

// Texts of a file. A pattern here has no more than what editors and Go understand alike.
const (
	countPattern  = `0*[1-9][0-9]*`
	numberPattern = `([0-9]+(\.[0-9]*)?|\.[0-9]+)`
	spanPattern   = `(` + numberPattern + `(ns|us|µs|μs|ms|s|m|h))+`
	perPattern    = spanPattern + `|ns|us|µs|ms|s|m|h|[0-9]*d|([0-9]+ ?)?days?|(` + numberPattern + ` ?)?(sec|second|min|minute|hr|hour)s?`
	limitPattern  = countPattern + `/(` + perPattern + `)( burst ` + countPattern + `)?|` +
		countPattern + ` per (hour|day|week|month)( [A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*)?|` + countPattern + ` at once|unlimited`
	durationPattern = `\+?(0|` + spanPattern + `)`
	routePattern    = `[^\n]*/[^\n]*`
	networkPattern  = `[0-9A-Fa-f:.]+/[0-9]{1,3}`
	tokenPattern    = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
)

// headerName is the name of a request header, by a pattern.
func headerName(pattern string) schema {
	s := text(pattern)
	s["not"] = schema{"pattern": "^" + anyCase("Host") + "$"}
	return s
}

// forwardingHeader is a header that Parse takes in capitals or not. Editors complete it.
func forwardingHeader() schema {
	names := []string{"X-Forwarded-For", "Forwarded"}
	return schema{"type": "string", "anyOf": []schema{{"enum": names}, {"pattern": "^(" + anyCase(names[0]) + "|" + anyCase(names[1]) + ")?$"}}}
}

// anyCase returns a pattern for a text in capitals or not.
func anyCase(text string) string {
	var b strings.Builder
	for _, c := range text {
		lower, upper := strings.ToLower(string(c)), strings.ToUpper(string(c))
		if lower == upper {
			b.WriteString(lower)
		} else {
			b.WriteString("[" + upper + lower + "]")
		}
	}
	return b.String()
}
