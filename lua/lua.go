// Package lua holds the scripts that charge and read buckets in Redis.
package lua

import _ "embed"

// Take is the source of take.lua, whose head describes its arguments and its reply.
//
//go:embed take.lua
var Take string

// TakeSHA1 is the SHA-1 of Take in hex, by which EVALSHA calls it. A constant, because SHA-1 at run
// time panics under GODEBUG=fips140=only.
const TakeSHA1 = "b3532878a3fc1cb4555f40598de593224bc309dd"

// Peek is the source of peek.lua, whose head describes its arguments and its reply.
//
//go:embed peek.lua
var Peek string

// PeekSHA1 is the SHA-1 of Peek in hex.
const PeekSHA1 = "cb5026a4ef6fcae30ef56d45159c1f834bf96959"
