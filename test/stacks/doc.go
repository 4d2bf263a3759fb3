// Package stacks contains only tests, of decorators of stores around other decorators.
package stacks
