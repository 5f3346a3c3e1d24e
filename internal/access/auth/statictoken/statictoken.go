// Package statictoken authenticates the bearer tokens of a file (--token-auth-file).
package statictoken

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Authenticator knows a set of tokens, which Replace replaces as a whole. They are keyed by their hash, so that the time
// of a lookup reveals nothing about them. It is an authn.AudienceAgnosticAuthenticator.
type Authenticator struct {
	users atomic.Pointer[users]
}

type users map[[sha256.Size]byte]*request.User

// Single returns an authenticator that knows one token.
func Single(token string, user *request.User) *Authenticator {
	s := &Authenticator{}
	s.users.Store(&users{sha256.Sum256([]byte(token)): authn.WithAuthenticated(user)})
	return s
}

// Replace replaces all tokens by those in content: CSV with the columns token, user name, user UID and, optionally, groups
// ("a,b,c" in quotes). If a token occurs more than once, the last line wins. Lines with an empty token are ignored. After an
// error the tokens are unchanged.
func (a *Authenticator) Replace(content []byte) error {
	known, err := parse(content)
	if err == nil {
		a.users.Store(&known)
	}
	return err
}

func parse(content []byte) (users, error) {
	const fewestFields, groupsField = 3, 3
	known := users{}
	r := csv.NewReader(bytes.NewReader(content))
	r.FieldsPerRecord = -1
	r.TrimLeadingSpace = true
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return known, nil
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
		known[sha256.Sum256([]byte(record[0]))] = authn.WithAuthenticated(user)
	}
}

// UserOfToken implements authn.AudienceAgnosticAuthenticator.
func (a *Authenticator) UserOfToken(_ context.Context, t authn.BearerToken) (*request.User, error) {
	return (*a.users.Load())[t.Hash], nil
}
