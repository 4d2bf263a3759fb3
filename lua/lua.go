// Package lua holds the script that a bucket in Redis runs by.
package lua

import _ "embed"

// Take is the source of take.lua, whose head describes its arguments and its reply.
//
//go:embed take.lua
var Take string

// TakeSHA1 is the SHA-1 of Take in hex, by which EVALSHA calls it. A constant, because SHA-1 at run
// time panics under GODEBUG=fips140=only.
const TakeSHA1 = "331e37046f71473c88246897ea5edeb9bb2c27df"
