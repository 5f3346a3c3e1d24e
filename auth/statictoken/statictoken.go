// Package statictoken authenticates the bearer tokens of a file (--token-auth-file).
package statictoken

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/request"
)

// Authenticator knows a fixed set of tokens. They are keyed by their hash, so that the time of
// a lookup reveals nothing about them. It is an authn.AudienceAgnosticAuthenticator.
type Authenticator struct {
	users map[[sha256.Size]byte]*request.User
}

// ReadFile reads a CSV file with the columns token, user name, user UID and, optionally,
// groups ("a,b,c" in quotes).
func ReadFile(path string) (*Authenticator, error) {
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

// Read reads the format that ReadFile describes. If a token occurs more than once, the last
// line wins. Lines with an empty token are ignored.
func Read(in io.Reader) (*Authenticator, error) {
	const fewestFields, groupsField = 3, 3
	s := &Authenticator{users: map[[sha256.Size]byte]*request.User{}}
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
			return nil, fmt.Errorf("line %d: a token needs at least 3 columns (token, user name, user uid), found %d", line,
				len(record))
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

// UserOfToken implements authn.AudienceAgnosticAuthenticator.
func (s *Authenticator) UserOfToken(_ context.Context, t authn.BearerToken) (*request.User, error) {
	return s.users[t.Hash], nil
}
