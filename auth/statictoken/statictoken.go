// Package statictoken authenticates bearer tokens from a file, as --token-auth-file
// gives them.
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

// Static is a fixed set of tokens, keyed by their hash so that looking one up
// takes no time that depends on it.
type Static struct {
	users map[[sha256.Size]byte]*request.User
}

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

// UserOfToken implements authn.TokenUsers.
func (s *Static) UserOfToken(_ context.Context, t authn.BearerToken) (*request.User, error) {
	return s.users[t.Hash], nil
}
