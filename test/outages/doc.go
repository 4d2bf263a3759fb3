// Package outages contains only tests. They measure what the requests of an API see while its Redis is in trouble,
// and write the tables of docs/outages.md.
package outages
