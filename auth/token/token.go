// Package token authenticates bearer tokens from a file, as --token-auth-file
// gives them.
package token

import (
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/request"
)

// Static is a fixed set of tokens, keyed by their hash so that looking one up
// takes no time that depends on it.
type Static struct {
	users map[[sha256.Size]byte]*request.User
}

// ErrInvalid says that a bearer token is unknown.
var ErrInvalid = errors.New("invalid bearer token")

// ReadFile reads a CSV file of token, user name, user UID and, optionally, groups
// ("a,b,c" in quotes).
func ReadFile(path string) (*Static, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	s, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Read reads the form that ReadFile describes. Where a token comes twice, the
// last line counts; an empty token is left out.
func Read(in io.Reader) (*Static, error) {
	const fewestFields, groupsField = 3, 3
	s := &Static{users: map[[sha256.Size]byte]*request.User{}}
	r := csv.NewReader(in)
	r.FieldsPerRecord = -1
	r.TrimLeadingSpace = true
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		if len(record) < fewestFields {
			return nil, fmt.Errorf("line %d: a token needs at least 3 columns (token, user name, user uid), found %d", line, len(record))
		}
		if record[0] == "" {
			continue
		}
		user := &request.User{Name: record[1], UID: record[2]}
		if len(record) > groupsField && record[groupsField] != "" {
			user.Groups = strings.Split(record[groupsField], ",")
		}
		s.users[sha256.Sum256([]byte(record[0]))] = authn.WithAuthenticated(user)
	}
}

// Authenticate implements authn.Authenticator.
func (s *Static) Authenticate(r *http.Request) (*request.User, error) {
	token, ok := Bearer(r)
	if !ok {
		return nil, nil
	}
	if user := s.users[sha256.Sum256([]byte(token))]; user != nil {
		return user, nil
	}
	return nil, ErrInvalid
}

// Bearer returns the request's bearer token (RFC 6750 section 2.1). Another
// scheme, or none, is no token.
func Bearer(r *http.Request) (string, bool) {
	header := strings.TrimSpace(r.Header.Get("Authorization"))
	if header == "" {
		return "", false
	}
	scheme, rest, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token, _, _ := strings.Cut(rest, " ")
	if token == "" {
		request.Warn(r.Context(), "the provided Authorization header contains extra space before the bearer token, and is ignored")
		return "", false
	}
	return token, true
}

// None refuses every bearer token: it stands where no file is given, so that a
// wrong token is answered 401 and not taken for no token.
type None struct{}

// Authenticate implements authn.Authenticator.
func (None) Authenticate(r *http.Request) (*request.User, error) {
	if _, ok := Bearer(r); ok {
		return nil, ErrInvalid
	}
	return nil, nil
}
