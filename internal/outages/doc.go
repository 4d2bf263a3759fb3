// Package outages has no code but tests: what the requests of an API see while its Redis is in trouble. They
// write docs/outages.md.
package outages
