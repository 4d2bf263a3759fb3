package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// minPassword is the minimum length of a password in bytes. Nothing slows down a client that guesses.
const minPassword = 12

// A User has a name and a password for [BasicAuth].
type User struct {
	Name     string // without a colon
	Password string // at least 12 bytes, chosen at random
	Access   Access // View or Change
}

// BasicAuth is an authorize function for users with a password. A request without the name and password of one of them is
// answered 401, so that a browser asks for them. The names and passwords are compared in constant time.
//
// Use it over HTTPS only: each request has the password. BasicAuth panics if there are no users, if two have the same name,
// or if a field of a user is missing or not as [User] says.
func BasicAuth(users ...User) func(*http.Request) (user string, allowed Access) {
	if len(users) == 0 {
		panic("admin: BasicAuth: users: must have at least one")
	}
	type hashes struct{ name, password [sha256.Size]byte }
	known, names := make([]hashes, len(users)), make(map[string]bool)
	for i, u := range users {
		if fault := u.fault(); fault != "" {
			panic(fmt.Sprintf("admin: BasicAuth: users[%d]: %s", i, fault))
		}
		if names[u.Name] {
			panic(fmt.Sprintf("admin: BasicAuth: users[%d]: Name %q: must not be that of another user", i, u.Name))
		}
		names[u.Name] = true
		known[i] = hashes{sha256.Sum256([]byte(u.Name)), sha256.Sum256([]byte(u.Password))}
	}
	users = slices.Clone(users)
	return func(r *http.Request) (user string, allowed Access) {
		allowed = askPassword
		name, password, _ := r.BasicAuth()
		given := hashes{sha256.Sum256([]byte(name)), sha256.Sum256([]byte(password))}
		for i := range known { // all, so that the time does not say which one it was
			if subtle.ConstantTimeCompare(given.name[:], known[i].name[:])&subtle.ConstantTimeCompare(given.password[:], known[i].password[:]) == 1 {
				user, allowed = users[i].Name, users[i].Access
			}
		}
		return user, allowed
	}
}

// fault says what is wrong with u, "" if nothing. It does not have the password.
func (u User) fault() string {
	switch {
	case u.Name == "" || strings.Contains(u.Name, ":") || strings.ContainsFunc(u.Name, unicode.IsControl):
		return fmt.Sprintf("Name %q: must be set, without a colon or control characters", u.Name)
	case len(u.Password) < minPassword:
		return fmt.Sprintf("Password of %q: must have at least %d bytes, has %d", u.Name, minPassword, len(u.Password))
	case strings.ContainsFunc(u.Password, unicode.IsControl):
		return fmt.Sprintf("Password of %q: must have no control characters, such as the line end of a file", u.Name)
	case !u.Access.mayView():
		return fmt.Sprintf("Access of %q: must be View or Change", u.Name)
	}
	return ""
}

// Guard passes requests on to next if authorize, a function as for [Handler], allows their user to [View]. Others are
// answered 403, or 401 with [BasicAuth]. Use it for other things that are for operators alone, such as metrics. Guard panics
// if authorize or next is nil.
func Guard(authorize func(*http.Request) (user string, allowed Access), next http.Handler) http.Handler {
	if authorize == nil || next == nil {
		panic("admin: Guard: authorize, next: must not be nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, allowed := authorize(r)
		if allowed.mayView() {
			next.ServeHTTP(w, r)
			return
		}
		p := keepOut(w.Header(), allowed)
		http.Error(w, p.text, p.status)
	})
}

// keepOut returns the answer to a user who may not see the page. header is that of the answer.
func keepOut(header http.Header, allowed Access) *problem {
	if allowed != askPassword {
		return &problem{status: http.StatusForbidden, text: "You may not see this page."}
	}
	header.Set("WWW-Authenticate", `Basic realm="operators", charset="UTF-8"`)
	return &problem{status: http.StatusUnauthorized, text: "This page needs a name and a password."}
}
