// Package lua holds the scripts that charge and read buckets in Redis.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua parts/*.lua
var files embed.FS

// Take is the source of take.lua, whose head describes its arguments and its reply. TakeOne and TakeFew are those of
// take_one.lua and take_few.lua, for what most scripts are asked.
var (
	Take    = script("take.lua")
	TakeOne = script("take_one.lua")
	TakeFew = script("take_few.lua")
)

// The SHA-1 of each script in hex, by which EVALSHA calls it. Constants, because SHA-1 at run time panics under
// GODEBUG=fips140=only.
const (
	TakeSHA1    = "3c218baf8817e8b2b4caead3ca05ccb17dfae5fc"
	TakeOneSHA1 = "3565d925c4d2969afca0f13c67d929cc611253bf"
	TakeFewSHA1 = "a2f40a6f13e415456a3b8e945938db3cf429d3fc"
)

// Peek is the source of peek.lua, whose head describes its arguments and its reply.
var Peek = script("peek.lua")

// PeekSHA1 is the SHA-1 of Peek in hex.
const PeekSHA1 = "cb5026a4ef6fcae30ef56d45159c1f834bf96959"

// part begins a line that stands for the file of parts that it names. The parts are the arithmetic that the scripts
// share. They are put in the place of such lines, because a function would have to be made in each run of a script.
const part = "--: "

// script returns the source of a script, which is joined from its file and parts.
func script(name string) string {
	source, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	var joined strings.Builder
	for line := range strings.Lines(string(source)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), part); ok {
			line = script("parts/" + name + ".lua")
		}
		joined.WriteString(line)
	}
	return joined.String()
}
