package command

import (
	"context"

	"github.com/go-tokenbucket/ratelimit/policyfile"
)

var schemaCommand = &command{
	name:     "schema",
	short:    "Shows the JSON Schema of files of policies, by which editors complete and check them.",
	long:     `With -names, a file may use only these functions of the program. Without, it may use any name.`,
	examples: []string{"ratelimit schema -names members,tier > limits.schema.json"},
	prepare: func(f *flags) func(context.Context, *env) error {
		names := defineNames(f)
		return func(_ context.Context, e *env) error {
			if err := e.none(); err != nil {
				return err
			}
			_, err := e.out.Write(policyfile.Schema(registry(*names)))
			return err
		}
	},
}
