package policyfile

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.yaml.in/yaml/v4"
)

// maxPatterns bounds the patterns of a file: a ServeMux compares each one with many others.
const maxPatterns = 2000

// Patterns are checked by the router that they are for.
type patterns struct {
	newRouter func() func(pattern string) // a function that adds to a router, and panics if it cannot
	add       func(pattern string)
	known     []string // were added
	line      map[string]int
}

func newPatterns(isChi bool) *patterns {
	p := &patterns{line: make(map[string]int)}
	p.newRouter = func() func(string) {
		mux := http.NewServeMux()
		return func(pattern string) {
			if method, _, ok := strings.Cut(pattern, " "); ok && method != strings.ToUpper(method) { // a ServeMux takes it, and no client sends it
				panic(fmt.Sprintf("the method %s is not in capitals", method))
			}
			mux.Handle(pattern, http.NotFoundHandler())
		}
	}
	if isChi {
		p.newRouter = func() func(string) {
			router := chi.NewRouter()
			return func(pattern string) { handleChi(router, pattern, http.NotFoundHandler()) }
		}
	}
	p.add = p.newRouter()
	return p
}

// checkPattern reports whether the router accepts a pattern, and notes the fault if it does not.
func (r *reader) checkPattern(node *yaml.Node, path, pattern string) bool {
	p := r.patterns
	switch {
	case p.line[pattern] > 0:
		return true
	case len(p.known) == maxPatterns:
		r.fault(node, path, "is one pattern too many: a file must have at most %d", maxPatterns)
		panic(enough{})
	}
	if fault := p.try(pattern); fault != "" {
		r.fault(node, path, "%s: %s", quote(pattern), fault)
		return false
	}
	p.known = append(p.known, pattern)
	p.line[pattern] = node.Line
	return true
}

// try adds a pattern, and returns why that fails. A pattern that an empty router takes conflicts with another one.
func (p *patterns) try(pattern string) (fault string) {
	const like = `must be like "GET /items/{id}" or "/items/"`
	if strings.Contains(pattern, "\n") {
		return like
	}
	if why := panicOf(p.add, pattern); why == "" {
		return ""
	}
	if why := panicOf(p.newRouter(), pattern); why != "" {
		return shown(why) + ": " + like
	}
	for _, other := range p.known {
		add := p.newRouter()
		add(other)
		if panicOf(add, pattern) != "" {
			return fmt.Sprintf("conflicts with %s of line %d, because some requests match both: one of the two must be more specific", quote(other), p.line[other])
		}
	}
	return "conflicts with others: must be more specific"
}

// panicOf returns the text of the panic of add, without the pattern that an error may quote around its reason.
func panicOf(add func(string), pattern string) (text string) {
	defer func() {
		reason := recover()
		err, _ := reason.(error)
		for err != nil {
			reason, err = err, errors.Unwrap(err)
		}
		if reason != nil {
			text = fmt.Sprint(reason)
		}
	}()
	add(pattern)
	return ""
}
