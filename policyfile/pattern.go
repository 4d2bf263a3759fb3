package policyfile

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// Patterns are checked by the router that they are for.
type patterns struct {
	add  func(pattern string)
	line map[string]int // of those that were added
}

func (r *reader) newPatterns() *patterns {
	p := &patterns{line: make(map[string]int)}
	if r.file.chi {
		router := chi.NewRouter()
		p.add = func(pattern string) { handleChi(router, pattern, http.NotFoundHandler()) }
	} else {
		mux := http.NewServeMux()
		p.add = func(pattern string) {
			if method, _, ok := strings.Cut(pattern, " "); ok && method != strings.ToUpper(method) { // a ServeMux takes it, and no client sends it
				panic(fmt.Sprintf("the method %s is not in capitals", method))
			}
			mux.Handle(pattern, http.NotFoundHandler())
		}
	}
	return p
}

// check reports whether the router accepts a pattern, and notes the fault if it does not.
func (p *patterns) check(r *reader, node *yamltree.Node, path, pattern string) bool {
	if p.line[pattern] > 0 {
		return true
	}
	if err := p.try(pattern); err != "" {
		r.fault(node, path, "%s: %s", quote(pattern), err)
		return false
	}
	p.line[pattern] = node.Line
	return true
}

var (
	conflict = regexp.MustCompile(`conflicts with pattern "(.*)" \(registered at`)
	parsing  = regexp.MustCompile(`^parsing ".*": (?:at offset \d+: )?`)
)

func (p *patterns) try(pattern string) (fault string) {
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		fault = fmt.Sprint(reason)
		if match := conflict.FindStringSubmatch(fault); match != nil {
			fault = fmt.Sprintf("conflicts with %s of line %d, because some requests match both: one of the two must be more specific", quote(match[1]), p.line[match[1]])
			return
		}
		fault = shown(strings.TrimPrefix(parsing.ReplaceAllString(fault, ""), "chi: ")) + `: must be like "GET /items/{id}" or "/items/"`
	}()
	if strings.Contains(pattern, "\n") {
		return `must be like "GET /items/{id}" or "/items/"`
	}
	p.add(pattern)
	return ""
}
