// Api compares the exported API of all modules with that of the last release. It fails if a program that compiles with
// the release might not compile any more. It leaves out the packages that docs/guarantees.md lists as likely to change.
//
//	make api
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	root, err := git(dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	last, err := lastRelease(root)
	if err != nil {
		return err
	}
	if last == "" {
		changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
		if err != nil {
			return err
		}
		if bytes.Contains(changelog, []byte("\n## [1.")) {
			return errors.New("CHANGELOG.md has a release, and no tag of one is behind this commit: git fetch --unshallow --tags")
		}
		fmt.Println("There is no release yet, so there is no API to compare with.")
		return nil
	}
	fmt.Printf("Comparing the API with %s.\n", last)
	released, err := os.MkdirTemp("", "released-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(released)
	// The commit before the tagged one has the same code, and finds the modules of the repository without downloading.
	if err := export(root, last+"^", released); err != nil {
		return err
	}
	was, err := exported(released)
	if err != nil {
		return fmt.Errorf("%s: %w", last, err)
	}
	is, err := exported(root)
	if err != nil {
		return err
	}
	changes := incompatible(was, is)
	for _, change := range changes {
		fmt.Println(change)
	}
	if len(changes) > 0 {
		return fmt.Errorf("incompatible changes since %s: %d: keep what is exported, and deprecate it", last, len(changes))
	}
	fmt.Printf("The API of %d packages is compatible with %s.\n", len(was), last)
	return nil
}

// lastRelease returns the tag of the last release behind HEAD, "" if there is none. Pre-releases promise nothing.
func lastRelease(root string) (string, error) {
	tags, err := git(root, "tag", "--list", "v1.*", "--merged", "HEAD")
	if err != nil {
		return "", err
	}
	stable := slices.DeleteFunc(strings.Fields(tags), func(tag string) bool { return semver.Prerelease(tag) != "" })
	if len(stable) == 0 {
		return "", nil
	}
	return slices.MaxFunc(stable, semver.Compare), nil
}

// export writes the files of a commit below dir.
func export(root, commit, dir string) error {
	index := "GIT_INDEX_FILE=" + filepath.Join(dir, ".index")
	if _, err := gitWith(index, root, "read-tree", commit); err != nil {
		return err
	}
	_, err := gitWith(index, root, "checkout-index", "--all", "--prefix="+dir+string(filepath.Separator))
	return err
}

// incompatible returns the changes after which a program might not compile.
func incompatible(was, is map[string]*types.Package) (changes []string) {
	for _, path := range slices.Sorted(maps.Keys(was)) {
		now, ok := is[path]
		if !ok {
			changes = append(changes, path+": removed, or experimental now")
			continue
		}
		for _, change := range apidiff.Changes(was[path], now).Changes {
			if !change.Compatible {
				changes = append(changes, path+": "+change.Message)
			}
		}
	}
	return changes
}

var experimental = regexp.MustCompile(`\bis\s+experimental\b`)

// exported returns the packages below root that programs import and that promise to stay, by path.
func exported(root string) (map[string]*types.Package, error) {
	goMods := []string{filepath.Join(root, "go.mod")}
	err := filepath.WalkDir(filepath.Join(root, "contrib"), func(name string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(name) == "go.mod" {
			goMods = append(goMods, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	found := make(map[string]*types.Package)
	for _, goMod := range goMods {
		loaded, err := packages.Load(&packages.Config{
			Mode: packages.LoadSyntax,
			Dir:  filepath.Dir(goMod),
			Env:  append(os.Environ(), "GOWORK=off"),
		}, "./...")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", goMod, err)
		}
		for _, p := range loaded {
			if len(p.Errors) > 0 {
				return nil, fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
			}
			if p.Name != "main" && !slices.Contains(strings.Split(p.PkgPath, "/"), "internal") && !experimental.MatchString(comment(p)) {
				found[p.PkgPath] = p.Types
			}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no packages")
	}
	return found, nil
}

// comment returns the first paragraph of the comment of a package.
func comment(p *packages.Package) string {
	for _, file := range p.Syntax {
		if file.Doc != nil {
			first, _, _ := strings.Cut(file.Doc.Text(), "\n\n")
			return first
		}
	}
	return ""
}

func git(dir string, args ...string) (string, error) { return gitWith("", dir, args...) }

// gitWith runs git with a variable of the environment.
func gitWith(variable, dir string, args ...string) (string, error) {
	var out, fault bytes.Buffer
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &fault
	cmd.Env = append(os.Environ(), variable)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(fault.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
