// Package replicas finds servers on one store that do not accept each other's credentials.
package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/gateway/peers"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/identity"
)

// Compare compares the credentials that this server accepts with those that the other servers on the store accept.
// It returns an error if another server would refuse clients of this one because each has made an authority or a
// key in its own data directory: behind a load balancer every other request would fail. If flags are the reason,
// or if there is no data directory, it only logs a warning: the files may be about to be replaced on all servers.
// Servers that start at the same time do not find each other here. Compare sets record.Accepts, with which they
// compare again and log the difference later.
func Compare(ctx context.Context, a *authentication.Authentication, record *peers.Record, log *slog.Logger) error {
	record.Accepts = func() peers.Accepts { return accepts(a) }
	found, err := separate(ctx, a, record)
	if err != nil {
		return err
	}
	if found != nil && found.made(a.Config) {
		return found.describe()
	}
	logged := ""
	record.Written = func(ctx context.Context) {
		text := ""
		if found, err := separate(ctx, a, record); err == nil && found != nil {
			text = config.CommandLine(found.describe())
		}
		if text != "" && text != logged {
			log.Error(text)
		}
		logged = text
	}
	return nil
}

// accepts returns the authorities and keys with which this server verifies credentials. It may create the server's
// own key.
func accepts(a *authentication.Authentication) peers.Accepts {
	var out peers.Accepts
	if a.Authorities.Clients != nil {
		out.Authorities = fingerprints(a.Authorities.Clients.PEM())
	}
	if a.Keys.Source == nil {
		return out
	}
	keys, _, err := a.Keys.Source.PublishedKeys() // code that signs tokens reports the error
	for _, key := range keys {
		if err == nil {
			out.TokenKeys = append(out.TokenKeys, key.ID)
		}
	}
	return out
}

// fingerprints returns 64 bits of the SHA-256 of each certificate in PEM text.
func fingerprints(text []byte) (out []string) {
	const size = 8
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		hash := sha256.Sum256(block.Bytes)
		out = append(out, hex.EncodeToString(hash[:size]))
	}
	return out
}

// replica is another server on the store that accepts no authority of client certificates, or no key of tokens,
// that this server accepts.
type replica struct {
	peers.Other
	authorities, keys bool
	pki               string // of this server; "" without a data directory
}

// separate returns the first replica that it finds among the other servers, nil if there is none.
func separate(ctx context.Context, a *authentication.Authentication, record *peers.Record) (*replica, error) {
	others, err := record.Others(ctx)
	if err != nil || len(others) == 0 {
		return nil, err
	}
	own := accepts(a)
	for _, other := range others {
		if authorities, keys := own.Separate(other.Accepts); authorities || keys {
			found := &replica{Other: other, authorities: authorities, keys: keys}
			if a.Config.Storage.DataDir != "" {
				found.pki = datadir.Certificates(a.Config.Storage.DataDir)
			}
			return found, nil
		}
	}
	return nil, nil
}

// made reports whether this server made its different authority or key itself, in its data directory.
func (r *replica) made(c *config.Config) bool {
	tokens := &c.Authentication.ServiceAccounts
	return c.Storage.DataDir != "" && (r.authorities && identity.OwnClientAuthority(c) ||
		r.keys && tokens.SigningEndpoint == "" && tokens.SigningKeyFile == "")
}

// describe returns an error with the credentials that differ, and with what to do.
func (r *replica) describe() *config.Error {
	var what, files, fields []string
	if r.authorities {
		what = append(what, "client certificates of another authority")
		files = append(files, "ca.crt", "ca.key")
		fields = append(fields, "{Authentication.ClientCAFile}")
	}
	if r.keys {
		what = append(what, "service account tokens of another key")
		files = append(files, "sa.key")
		fields = append(fields, "{Authentication.ServiceAccounts.SigningKeyFile}")
	}
	advice := fmt.Sprintf("give all servers the same %s", strings.Join(fields, " and "))
	if r.pki != "" {
		advice = fmt.Sprintf("copy %s from its data directory to %s, or %s", strings.Join(files, ", "), r.pki, advice)
	}
	return config.Errorf("the server at %s on the same store accepts %s, so what one of the two accepts the other refuses; %s",
		r.Address, strings.Join(what, " and "), advice)
}
