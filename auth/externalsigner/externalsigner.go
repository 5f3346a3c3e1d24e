// Package externalsigner lets another program, which listens on a socket of this
// machine, sign service account tokens: the private key never is in the server. The
// program says with which keys tokens are verified, and which of them relying
// parties are told of. Both speak the API ExternalJWTSigner v1 over gRPC (KEP-740).
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

	"github.com/keelson-dev/keelson/auth/serviceaccount"
)

const (
	// fetchTime is how long the program may take to list its keys, metadataTime how
	// long to say what it can do.
	fetchTime    = time.Minute
	metadataTime = 10 * time.Second
	// signTime bounds one signature, beside the request's own time.
	signTime = time.Minute

	// maxKeyID is the length that IDs of keys may have.
	maxKeyID = 1024

	shortestLife = 10 * time.Minute
)

// Options are what a Signer needs.
type Options struct {
	// Socket is the path of a Unix domain socket, or @ and the name of an abstract one.
	Socket  string
	Log     *slog.Logger
	Metrics *Metrics
	Now     func() time.Time
}

// Signer is the program. It is a serviceaccount.KeySource.
type Signer struct {
	client  externaljwt.ExternalJWTSignerClient
	conn    *grpc.ClientConn
	metrics *Metrics
	log     *slog.Logger
	keys    keys
	// maxLife is the longest life of a token that the program signs.
	maxLife time.Duration
}

// Open asks the program for its keys and for what it can do. Call Follow then, and
// Close at the end.
func Open(ctx context.Context, o Options) (*Signer, error) {
	conn, err := grpc.NewClient("passthrough:///"+o.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of this machine
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
	fetching, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	if err := s.keys.refresh(fetching); err != nil {
		return fmt.Errorf("while initially filling key cache: %w", err)
	}
	asking, cancel := context.WithTimeout(ctx, metadataTime)
	defer cancel()
	metadata, err := s.client.Metadata(asking, &externaljwt.MetadataRequest{})
	if err != nil {
		return err
	}
	seconds := metadata.GetMaxTokenExpirationSeconds()
	s.maxLife = time.Duration(min(seconds, int64(maxDuration/time.Second))) * time.Second
	if s.maxLife < shortestLife {
		return fmt.Errorf("max token life supported by external-jwt-signer (%ds) is less than acceptable (min %ds)", seconds, int(shortestLife/time.Second))
	}
	return nil
}

// maxDuration is the longest time.Duration.
const maxDuration = time.Duration(1<<63 - 1)

// MaxLife returns the longest life of a token that the program signs.
func (s *Signer) MaxLife() time.Duration { return s.maxLife }

// Close ends the connection.
func (s *Signer) Close() error { return s.conn.Close() }

// Follow asks for the keys again whenever the program wants to be asked, until ctx
// ends. Those before stay in use while it does not answer.
func (s *Signer) Follow(ctx context.Context) {
	s.keys.follow(ctx, func(err error) {
		s.log.Error("the external signer of service account tokens does not tell its keys; those before stay in use", "error", err)
	})
}

// Known implements serviceaccount.KeySource. A key ID that is not known is asked
// for.
func (s *Signer) Known(ctx context.Context, id string) []serviceaccount.PublicKey {
	known := s.keys.withID(id)
	if len(known) > 0 {
		return known
	}
	if err := s.keys.refresh(ctx); err != nil {
		s.log.Error("the external signer of service account tokens does not tell its keys", "error", err)
		return nil
	}
	return s.keys.withID(id)
}

// Published implements serviceaccount.KeySource.
func (s *Signer) Published() ([]serviceaccount.PublicKey, time.Duration, error) {
	set := s.keys.current.Load()
	out := slices.DeleteFunc(slices.Clone(set.keys), func(k serviceaccount.PublicKey) bool { return k.Unpublished })
	return out, max(0, set.refresh.Sub(s.keys.now())), nil
}

// Generation implements serviceaccount.KeySource.
func (s *Signer) Generation() uint64 { return s.keys.current.Load().generation }

// Sign implements serviceaccount.KeySource.
func (s *Signer) Sign(ctx context.Context, payload []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	token, err := s.sign(ctx, payload)
	s.metrics.signed(err)
	return token, err
}

func (s *Signer) sign(ctx context.Context, payload []byte) (string, error) {
	claims := base64.RawURLEncoding.EncodeToString(payload)
	answer, err := s.client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: claims})
	if err != nil {
		return "", fmt.Errorf("while signing jwt: %w", err)
	}
	id, err := headerKey(answer.GetHeader())
	if err != nil {
		return "", fmt.Errorf("while validating header: %w", err)
	}
	for _, key := range s.Known(ctx, id) {
		if key.Unpublished { // it verifies tokens of another time
			return "", fmt.Errorf("while validating header: key used for signing JWT (kid: %s) is excluded from OIDC discovery docs", id)
		}
	}
	if answer.GetSignature() == "" {
		return "", errors.New("empty signature returned")
	}
	return answer.GetHeader() + "." + claims + "." + answer.GetSignature(), nil
}

// headerKey returns the key ID of a token's header, which has nothing but what a
// token of a service account needs.
func headerKey(encoded string) (string, error) {
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
	case len(header.KeyID) > maxKeyID:
		return "", errors.New("key id longer than 1 kb")
	case !serviceaccount.IsAlgorithm(header.Algorithm):
		return "", fmt.Errorf("bad signing algorithm %q", header.Algorithm)
	}
	return header.KeyID, nil
}
