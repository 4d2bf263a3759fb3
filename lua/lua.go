// Package lua holds the scripts that charge and read buckets in Redis.
package lua

import _ "embed"

// Take is the source of take.lua, whose head describes its arguments and its reply.
//
//go:embed take.lua
var Take string

// TakeSHA1 is the SHA-1 of Take in hex, by which EVALSHA calls it. A constant, because SHA-1 at run
// time panics under GODEBUG=fips140=only.
const TakeSHA1 = "205bdfd822bca5917f9b6f41d7531d838fc308ca"

// Peek is the source of peek.lua, whose head describes its arguments and its reply.
//
//go:embed peek.lua
var Peek string

// PeekSHA1 is the SHA-1 of Peek in hex.
const PeekSHA1 = "cc93621ea5715cc40469a369b02bfeb61fc8e86f"
