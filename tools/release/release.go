package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// A made release is what release has added to the repository.
type made struct {
	branch string
	before string   // the commit of the branch before
	tags   []string // first that of the root
}

// release makes the release of version from the branch that is checked out at dir. All refs change in one transaction
// at the end, so after an error the repository is as before.
func release(dir, version string, now time.Time) (made, error) {
	if err := checkVersion(version); err != nil {
		return made{}, err
	}
	repo, err := openRepository(dir)
	if err != nil {
		return made{}, err
	}
	defer repo.close()
	head, err := repo.git("rev-parse", "HEAD")
	if err != nil {
		return made{}, err
	}
	branch, err := repo.git("symbolic-ref", "--quiet", "--short", "HEAD")
	if err != nil {
		return made{}, errors.New("no branch is checked out: git checkout main first")
	}
	modules, err := repo.modules(version)
	if err != nil {
		return made{}, err
	}
	tags, err := repo.newTags(modules)
	if err != nil {
		return made{}, err
	}

	if err := repo.edit(changelogFile, func(text []byte) ([]byte, error) { return datedChangelog(text, version, now) }); err != nil {
		return made{}, err
	}
	dated, err := repo.commit("Date the changelog of "+version, head)
	if err != nil {
		return made{}, err
	}
	for i := range modules {
		if err := repo.requireReleased(&modules[i], modules[:i]); err != nil {
			return made{}, err
		}
	}
	released, err := repo.commit("Release "+version, dated)
	if err != nil {
		return made{}, err
	}
	joined, err := repo.join(dated, released, "Join the release of "+version)
	if err != nil {
		return made{}, err
	}
	if err := repo.publish(head, joined, released, tags); err != nil {
		return made{}, err
	}
	return made{branch, head, tags}, nil
}

func checkVersion(version string) error {
	switch {
	case semver.Canonical(version) != version || !semver.IsValid(version):
		return fmt.Errorf("VERSION is %q: must be like v1.2.3 or v1.3.0-rc.1", version)
	case semver.Major(version) != "v1":
		return fmt.Errorf("VERSION is %s: must be v1.x.y: there are no releases before it, and v2 has another module path", version)
	}
	return nil
}

// newTags returns the tags of the modules. It returns an error if one exists.
func (r *repository) newTags(modules []module) ([]string, error) {
	var tags []string
	for _, m := range modules {
		if m.published() {
			tags = append(tags, m.tag())
		}
	}
	existing, err := r.git(append([]string{"tag", "--list"}, tags...)...)
	if err != nil {
		return nil, err
	}
	if existing != "" {
		return nil, fmt.Errorf("these tags exist, so choose the next version: %s", strings.Join(strings.Fields(existing), " "))
	}
	return tags, nil
}

// tag returns the name of the tag that Go looks for. A major version at the end of the module's path is not a part of
// it, see https://go.dev/ref/mod#vcs-version.
func (m *module) tag() string {
	dir := m.dir
	if base := path.Base(dir); base == semver.Major(m.version) {
		dir = path.Dir(dir)
	}
	return path.Join(dir, m.version)
}

// publish lets the branch go on to the commit joined, and the tags name the commit released.
func (r *repository) publish(head, joined, released string, tags []string) error {
	var refs strings.Builder
	fmt.Fprintf(&refs, "start\nupdate HEAD %s %s\n", joined, head)
	for _, tag := range slices.Sorted(slices.Values(tags)) {
		fmt.Fprintf(&refs, "create refs/tags/%s %s\n", tag, released)
	}
	refs.WriteString("prepare\ncommit\n")
	// The work tree comes first, because a file that is locked may keep it from changing.
	if _, err := r.gitOfUser("read-tree", "-m", "-u", head, joined); err != nil {
		return err
	}
	if _, err := r.gitInput(refs.String(), "update-ref", "-m", "release", "--stdin"); err != nil {
		_, back := r.gitOfUser("read-tree", "-m", "-u", joined, head)
		return errors.Join(err, back)
	}
	return nil
}
