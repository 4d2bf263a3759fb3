// Release makes the commits and the tags of a release in this copy of the repository. It pushes nothing.
//
//	make release VERSION=v1.0.0
//
// It adds a commit to the branch, which dates the section of CHANGELOG.md. Beside the branch, it adds the commit that
// all tags name. There, the modules require each other at the released versions and have no replace directive, which
// counts in the main module alone, and which go install refuses. A third commit joins both, without a change of a file:
// on the branch, development goes on with replace.
//
// If anything is wrong, Release reports it and changes nothing.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] == "" {
		fmt.Fprintln(os.Stderr, "release: VERSION is missing: make release VERSION=v1.2.3")
		os.Exit(2)
	}
	made, err := release(".", os.Args[1], time.Now())
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Printf("Made %s on branch %s, and pushed nothing. Its tags:\n", os.Args[1], made.branch)
	for _, tag := range made.tags {
		fmt.Println("  " + tag)
	}
	fmt.Println("To publish it:")
	// GitHub starts no workflow for a push of more than three tags, so the root's tag is pushed alone.
	fmt.Printf("  git push --atomic origin %s %s && git push origin %s\n", made.branch, strings.Join(made.tags[1:], " "), made.tags[0])
	fmt.Printf("To undo it before that, with all commits since:\n  git reset --keep %s && git tag -d %s\n", made.before, strings.Join(made.tags, " "))
}
