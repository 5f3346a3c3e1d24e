package externalsigner

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

var _ serviceaccount.KeySource = (*Signer)(nil)

// program is an external signer with one key.
type program struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	key *ecdsa.PrivateKey

	mu      sync.Mutex // guards what follows
	told    *externaljwt.FetchKeysResponse
	failing error
	fetches int
	life    int64
	header  string // of tokens, JSON
}

func (p *program) FetchKeys(context.Context, *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetches++
	return proto.CloneOf(p.told), p.failing
}

func (p *program) Metadata(context.Context, *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: p.life}, nil
}

func (p *program) Sign(_ context.Context, r *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	header := base64.RawURLEncoding.EncodeToString([]byte(p.header))
	hash := crypto.SHA256.New()
	hash.Write([]byte(header + "." + r.Claims))
	a, b, err := ecdsa.Sign(rand.Reader, p.key, hash.Sum(nil))
	if err != nil {
		return nil, err
	}
	signature := make([]byte, 64)
	a.FillBytes(signature[:32])
	b.FillBytes(signature[32:])
	return &externaljwt.SignJWTResponse{Header: header, Signature: base64.RawURLEncoding.EncodeToString(signature)}, nil
}

func (p *program) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func told(t *testing.T, id string, key crypto.PublicKey, unpublished bool) *externaljwt.Key {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &externaljwt.Key{KeyId: id, Key: der, ExcludeFromOidcDiscovery: unpublished}
}

func newProgram(t *testing.T) *program {
	p := &program{key: newKey(t), life: 3600, header: `{"alg":"ES256","kid":"one","typ":"JWT"}`}
	p.told = &externaljwt.FetchKeysResponse{
		Keys:          []*externaljwt.Key{told(t, "one", p.key.Public(), false), told(t, "old", newKey(t).Public(), true)},
		DataTimestamp: timestamppb.New(time.Unix(1000, 0)), RefreshHintSeconds: 60,
	}
	return p
}

// serve returns the socket of a program. It is an abstract socket, because a path may be too long.
func serve(t *testing.T, p *program) string {
	t.Helper()
	socket := "@keelson-" + strings.ToLower(rand.Text())
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	externaljwt.RegisterExternalJWTSignerServer(server, p)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func open(t *testing.T, p *program) (*Signer, error) {
	t.Helper()
	s, err := Open(t.Context(),
		Options{Socket: serve(t, p), Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(metrics.New(nil, metrics.Options{})), Now: time.Now})
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return s, err
}

func ids(keys []serviceaccount.PublicKey) string {
	var out []string
	for _, k := range keys {
		out = append(out, k.ID)
	}
	return strings.Join(out, " ")
}

func TestTokensAreSignedByTheProgram(t *testing.T) {
	p := newProgram(t)
	s, err := open(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if s.MaxLife() != time.Hour {
		t.Errorf("longest life %v", s.MaxLife())
	}
	token, err := s.Sign(t.Context(), []byte(`{"iss":"me"}`))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	known := s.VerificationKeys(t.Context(), signed.Signatures[0].Header.KeyID)
	if ids(known) != "one" {
		t.Fatalf("known %v", ids(known))
	}
	if payload, err := signed.Verify(known[0].Key); err != nil || string(payload) != `{"iss":"me"}` {
		t.Errorf("%s %v", payload, err)
	}
	if all := ids(s.VerificationKeys(t.Context(), "")); all != "one old" {
		t.Errorf("all keys: %s", all)
	}
	published, age, err := s.PublishedKeys()
	if ids(published) != "one" || age <= 0 || age > time.Minute || err != nil {
		t.Errorf("published: %s for %v, %v", ids(published), age, err)
	}
}

// TestHeadersOfTokens checks that a header needs the required fields and must not have others.
func TestHeadersOfTokens(t *testing.T) {
	p := newProgram(t)
	s, err := open(t, p)
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{
		`{"alg":"ES256","kid":"one","typ":"JWT"}`: "",
		`{"alg":"ES256","kid":"one","typ":"JWS"}`: "while validating header: bad type",
		`{"alg":"ES256","typ":"JWT"}`:             "while validating header: key id missing",
		`{"alg":"ES256","kid":"` + strings.Repeat("x", 1025) +
			`","typ":"JWT"}`: "while validating header: key id longer than 1 kb",
		`{"alg":"none","kid":"one","typ":"JWT"}`: `while validating header: bad ` +
			`signing algorithm "none"`,
		`{"alg":"ES256","kid":"one","typ":"JWT","jku":"https://example.com/"}`: `while validating header: while ` +
			`parsing header JSON: json: unknown field "jku"`,
		`{"alg":"ES256","kid":"old","typ":"JWT"}`: "while validating header: key " +
			"used for signing JWT (kid: old) is excluded from OIDC discovery docs",
		`{"alg":"ES256","kid":"a key that is told after it signs","typ":"JWT"}`: "",
	} {
		p.change(func() { p.header = header })
		message := ""
		if _, err := s.Sign(t.Context(), []byte("{}")); err != nil {
			message = err.Error()
		}
		if message != want {
			t.Errorf("%.80s: %q, want %q", header, message, want)
		}
	}
}

// TestInvalidResponsesOfTheProgram checks that a response is refused as a whole if a part of it is not valid.
func TestInvalidResponsesOfTheProgram(t *testing.T) {
	key := newKey(t).Public()
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*program){
		"found invalid refresh hint (0s)": func(p *program) { p.told.RefreshHintSeconds = 0 },
		"found no keys":                   func(p *program) { p.told.Keys = nil },
		"invalid data timestamp":          func(p *program) { p.told.DataTimestamp = nil },
		`found invalid public key id ""`:  func(p *program) { p.told.Keys[0].KeyId = "" },
		"found invalid public key id":     func(p *program) { p.told.Keys[0].KeyId = strings.Repeat("x", 1025) },
		"found empty public key":          func(p *program) { p.told.Keys[1].Key = nil },
		"while parsing external public":   func(p *program) { p.told.Keys[1].Key = []byte("x") },
		"unknown public key type":         func(p *program) { p.told.Keys = append(p.told.Keys, told(t, "ed", ed, false)) },
		"is less than acceptable (min 600s)": func(p *program) {
			p.life = 599
			p.told.Keys = append(p.told.Keys, told(t, "two", key, false))
		},
		"no key today": func(p *program) { p.failing = status.Error(codes.Internal, "no key today") },
	} {
		p := newProgram(t)
		change(p)
		if _, err := open(t, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestKeysComeAndGo checks that the keys are fetched for a token with an unknown key, and that tokens of a withdrawn
// key are invalid.
func TestKeysComeAndGo(t *testing.T) {
	p := newProgram(t)
	s, err := open(t, p)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Generation()
	p.change(func() { p.told.Keys = append(p.told.Keys, told(t, "two", newKey(t).Public(), false)) })
	if known := ids(s.VerificationKeys(t.Context(), "two")); known != "two" || s.Generation() != before {
		t.Errorf("a new key: %q, generation %d after %d", known, s.Generation(), before)
	}
	p.change(func() { p.told.Keys = p.told.Keys[1:] })
	if known := ids(s.VerificationKeys(t.Context(), "three")); known != "" {
		t.Errorf("a key that is not there: %s", known)
	}
	if all := ids(s.VerificationKeys(t.Context(), "")); all != "old two" || s.Generation() == before {
		t.Errorf("a key was taken back: %s, generation %d", all, s.Generation())
	}
	after := s.Generation()
	p.change(func() { p.told.Keys[0] = told(t, "old", newKey(t).Public(), true) })
	s.VerificationKeys(t.Context(), "three")
	if s.Generation() == after {
		t.Error("another key of the same ID: the generation is the same")
	}
	p.change(func() { p.failing = errors.New("away") })
	if known := ids(s.VerificationKeys(t.Context(), "three")); known != "" ||
		ids(s.VerificationKeys(t.Context(), "")) != "old two" {
		t.Errorf("without the program: %q, %q", known, ids(s.VerificationKeys(t.Context(), "")))
	}
}

// TestKeysAreFollowed checks that keys are fetched again at the times that the program asks
// for, and that an error is reported.
func TestKeysAreFollowed(t *testing.T) {
	asked := make(chan bool)
	answer := make(chan error)
	now := time.Unix(1000, 0)
	k := &keys{now: func() time.Time { return now }, fetch: func(context.Context) (*keySet, error) {
		asked <- true
		return &keySet{refreshAt: now.Add(time.Hour)}, <-answer
	}}
	k.current.Store(&keySet{refreshAt: now}) // it is time
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan bool)
	failures := make(chan error, 1)
	go func() {
		defer close(done)
		k.refreshUntilDone(ctx, func(err error) { failures <- err })
	}()
	<-asked
	answer <- errors.New("away")
	if err := <-failures; !strings.Contains(err.Error(), "away") {
		t.Error(err)
	}
	stop()
	<-done
}
