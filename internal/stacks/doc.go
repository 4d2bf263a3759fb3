// Package stacks tests decorators of stores that are put on one another. It has tests only.
package stacks
