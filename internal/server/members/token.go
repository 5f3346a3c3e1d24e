package members

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Token is a token for joining, as administrators see it.
type Token struct {
	ID          string    `json:"id"`
	Description string    `json:"description,omitempty"`
	Created     time.Time `json:"created"`
	Expires     time.Time `json:"expires"`
	// Hash is the SHA-256 of the secret part, in hexadecimal. It is only in the store.
	Hash string `json:"hash,omitempty"`
}

const (
	// tokenPrefix is the beginning of each token, with the version of the form.
	tokenPrefix = "keelson1"
	// tokensKey is the beginning of the keys of tokens in etcd, which no request of the API reaches.
	tokensKey = "keelson.dev/members/tokens/"
	// DefaultTokenTime is how long a token is valid, if nothing else is asked for, and maxTokenTime the longest time.
	DefaultTokenTime, maxTokenTime = 24 * time.Hour, 365 * 24 * time.Hour
)

// errToken is the error of a token that is not valid. It does not say why.
var errToken = errors.New("the token is not valid: it is unknown, has expired or was revoked")

// parsedToken is a token in its parts.
type parsedToken struct {
	id, secret string
	pin        string // hash of the authority, in hexadecimal
}

// String returns the text that a person copies.
func (t parsedToken) String() string {
	return strings.Join([]string{tokenPrefix, t.id, t.secret, t.pin}, ".")
}

func parseToken(text string) (t parsedToken, err error) {
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 4 || parts[0] != tokenPrefix || parts[1] == "" || parts[2] == "" || len(parts[3]) != 2*sha256.Size {
		return t, fmt.Errorf("a token has the form %s.ID.SECRET.HASH; `keelson members token create`, run at a member, prints one", tokenPrefix)
	}
	return parsedToken{parts[1], parts[2], parts[3]}, nil
}

// pin returns the hash by which a joining server recognizes the authority of the cluster: that of the first certificate in PEM text.
func pin(roots []byte) string {
	block, _ := pem.Decode(roots)
	if block == nil {
		return ""
	}
	hash := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(hash[:])
}

func secretHash(secret string) string {
	hash := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(hash[:])
}

// createToken makes a token and returns its text. etcd removes it when it expires.
func (c *Cluster) createToken(ctx context.Context, description string, lifetime time.Duration) (string, Token, error) {
	t := parsedToken{strings.ToLower(rand.Text()[:8]), rand.Text(), pin(c.Roots())}
	now := time.Now().Truncate(time.Second)
	stored := Token{ID: t.id, Description: description, Created: now, Expires: now.Add(lifetime), Hash: secretHash(t.secret)}
	value, err := json.Marshal(stored)
	if err != nil {
		return "", Token{}, err
	}
	if err := c.put(ctx, tokensKey+t.id, value, lifetime); err != nil {
		return "", Token{}, err
	}
	stored.Hash = ""
	return t.String(), stored, nil
}

// put writes a key that etcd removes after a time.
func (c *Cluster) put(ctx context.Context, key string, value []byte, lifetime time.Duration) error {
	client := c.member.Load().Clients().Client
	lease, err := client.Grant(ctx, int64(lifetime.Seconds()))
	if err != nil {
		return err
	}
	_, err = client.Put(ctx, key, string(value), clientv3.WithLease(lease.ID))
	return err
}

// tokens returns the tokens, the one that expires first at the beginning.
func (c *Cluster) tokens(ctx context.Context) ([]Token, error) {
	r, err := c.member.Load().Clients().Client.Get(ctx, tokensKey, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	list := []Token{}
	for _, kv := range r.Kvs {
		var t Token
		if err := json.Unmarshal(kv.Value, &t); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Token) int { return a.Expires.Compare(b.Expires) })
	return list, nil
}

// revokeToken removes a token. It reports whether there was one.
func (c *Cluster) revokeToken(ctx context.Context, id string) (bool, error) {
	r, err := c.member.Load().Clients().Client.Delete(ctx, tokensKey+id)
	return err == nil && r.Deleted > 0, err
}

// checkToken returns errToken if a token is not valid now. The hash in it is not checked: the joining server does that.
func (c *Cluster) checkToken(ctx context.Context, text string) error {
	given, err := parseToken(text)
	if err != nil {
		return errToken
	}
	list, err := c.tokens(ctx)
	if err != nil {
		return err
	}
	for _, t := range list {
		same := subtle.ConstantTimeCompare([]byte(t.Hash), []byte(secretHash(given.secret))) == 1
		if t.ID == given.id && same && time.Now().Before(t.Expires) {
			return nil
		}
	}
	return errToken
}
