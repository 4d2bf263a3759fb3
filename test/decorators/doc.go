// Package decorators contains only tests, of decorators of stores around other decorators, and of limiters over them and
// over a Redis in trouble.
package decorators
