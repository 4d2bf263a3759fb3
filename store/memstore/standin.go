package memstore

import "github.com/go-tokenbucket/ratelimit/internal/standin"

func init() { standin.New = func() any { return New(Config{}) } }
