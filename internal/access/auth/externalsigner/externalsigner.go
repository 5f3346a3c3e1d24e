// Package externalsigner signs service account tokens by an external program, which listens
// on a Unix domain socket. The server never has the private key. The program also provides
// the public keys to verify tokens with, and decides which of them are published. The API is
// ExternalJWTSigner v1 over gRPC (KEP-740).
package externalsigner

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
)

const (
	// fetchTimeout limits a call of FetchKeys, metadataTimeout one of Metadata.
	fetchTimeout    = time.Minute
	metadataTimeout = 10 * time.Second
	// signTimeout limits a call of Sign, in addition to the deadline of the request.
	signTimeout = time.Minute

	// maxKeyIDLength is the longest key ID, in bytes.
	maxKeyIDLength = 1024

	// minMaxLife is the least value of MaxLife that the program may have.
	minMaxLife = 10 * time.Minute
)

// Options configure a Signer.
type Options struct {
	// Socket is the path of a Unix domain socket, or @ and the name of an abstract socket.
	Socket  string
	Log     *slog.Logger
	Metrics *Metrics
	Now     func() time.Time
}

// Signer is a client of the external program. It is a serviceaccount.KeySource.
type Signer struct {
	client  externaljwt.ExternalJWTSignerClient
	conn    *grpc.ClientConn
	metrics *Metrics
	log     *slog.Logger
	keys    keys
	// maxLife is the longest lifetime of a token that the program signs.
	maxLife time.Duration
}

// Open connects to the program and fetches its keys and metadata. The caller then runs Follow
// in the background, and calls Close at the end.
func Open(ctx context.Context, o Options) (*Signer, error) {
	conn, err := grpc.NewClient("passthrough:///"+o.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a Unix domain socket is local
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		grpc.WithChainUnaryInterceptor(o.Metrics.intercept),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot use the socket %q: %w", o.Socket, err)
	}
	s := &Signer{client: externaljwt.NewExternalJWTSignerClient(conn), conn: conn, metrics: o.Metrics, log: o.Log}
	s.keys.fetch, s.keys.now = s.fetchKeys, o.Now
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Signer) open(ctx context.Context) error {
	fetching, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := s.keys.refresh(fetching); err != nil {
		return fmt.Errorf("while initially filling key cache: %w", err)
	}
	asking, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	metadata, err := s.client.Metadata(asking, &externaljwt.MetadataRequest{})
	if err != nil {
		return err
	}
	seconds := metadata.GetMaxTokenExpirationSeconds()
	s.maxLife = time.Duration(min(seconds, int64(maxDuration/time.Second))) * time.Second
	if s.maxLife < minMaxLife {
		return fmt.Errorf("max token life supported by external-jwt-signer (%ds) is less than acceptable (min %ds)", seconds,
			int(minMaxLife/time.Second))
	}
	return nil
}

// maxDuration is the longest time.Duration.
const maxDuration = time.Duration(1<<63 - 1)

// MaxLife returns the longest lifetime of a token that the program signs.
func (s *Signer) MaxLife() time.Duration { return s.maxLife }

// Close closes the connection.
func (s *Signer) Close() error { return s.conn.Close() }

// Follow fetches the keys again at the times that the program requests, until ctx is done. If that fails, the previous
// keys stay in use.
func (s *Signer) Follow(ctx context.Context) {
	s.keys.refreshUntilDone(ctx, func(err error) {
		s.log.Error("cannot fetch keys from the external signer of service account tokens; the previous keys stay "+
			"in use", "error", err)
	})
}

// VerificationKeys implements serviceaccount.KeySource. For an unknown key ID, it fetches the
// keys again.
func (s *Signer) VerificationKeys(ctx context.Context, id string) []serviceaccount.PublicKey {
	known := s.keys.find(id)
	if len(known) > 0 {
		return known
	}
	if err := s.keys.refresh(ctx); err != nil {
		s.log.Error("cannot fetch keys from the external signer of service account tokens", "error", err)
		return nil
	}
	return s.keys.find(id)
}

// PublishedKeys implements serviceaccount.KeySource.
func (s *Signer) PublishedKeys() ([]serviceaccount.PublicKey, time.Duration, error) {
	set := s.keys.current.Load()
	out := slices.DeleteFunc(slices.Clone(set.keys), func(k serviceaccount.PublicKey) bool { return k.Unpublished })
	return out, max(0, set.refreshAt.Sub(s.keys.now())), nil
}

// Generation implements serviceaccount.KeySource.
func (s *Signer) Generation() uint64 { return s.keys.current.Load().generation }

// Sign implements serviceaccount.KeySource.
func (s *Signer) Sign(ctx context.Context, payload []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	token, err := s.sign(ctx, payload)
	s.metrics.signed(err)
	return token, err
}

func (s *Signer) sign(ctx context.Context, payload []byte) (string, error) {
	claims := base64.RawURLEncoding.EncodeToString(payload)
	response, err := s.client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: claims})
	if err != nil {
		return "", fmt.Errorf("while signing jwt: %w", err)
	}
	id, err := keyIDFromHeader(response.GetHeader())
	if err != nil {
		return "", fmt.Errorf("while validating header: %w", err)
	}
	for _, key := range s.VerificationKeys(ctx, id) {
		if key.Unpublished { // such a key may only verify older tokens
			return "", fmt.Errorf(
				"while validating header: key used for signing JWT (kid: %s) is excluded from OIDC discovery docs", id)
		}
	}
	if response.GetSignature() == "" {
		return "", errors.New("empty signature returned")
	}
	return response.GetHeader() + "." + claims + "." + response.GetSignature(), nil
}

// keyIDFromHeader returns the key ID in the header of a signed token. The header must have the
// fields alg, kid and typ only.
func keyIDFromHeader(encoded string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("while unwrapping header: %w", err)
	}
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		Type      string `json:"typ"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&header); err != nil {
		return "", fmt.Errorf("while parsing header JSON: %w", err)
	}
	switch {
	case header.Type != "JWT":
		return "", errors.New("bad type")
	case header.KeyID == "":
		return "", errors.New("key id missing")
	case len(header.KeyID) > maxKeyIDLength:
		return "", errors.New("key id longer than 1 kb")
	case !serviceaccount.IsAlgorithm(header.Algorithm):
		return "", fmt.Errorf("bad signing algorithm %q", header.Algorithm)
	}
	return header.KeyID, nil
}
