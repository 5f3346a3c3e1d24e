package server

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// signingProgram signs service account tokens with one key.
type signingProgram struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	key *rsa.PrivateKey
}

const signingKeyID = "a-key-of-another-program"

func (p *signingProgram) FetchKeys(
	context.Context, *externaljwt.FetchKeysRequest,
) (*externaljwt.FetchKeysResponse, error) {
	der, err := x509.MarshalPKIXPublicKey(p.key.Public())
	return &externaljwt.FetchKeysResponse{
		Keys:          []*externaljwt.Key{{KeyId: signingKeyID, Key: der}},
		DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 60,
	}, err
}

func (p *signingProgram) Metadata(
	context.Context, *externaljwt.MetadataRequest,
) (*externaljwt.MetadataResponse, error) {
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: 7200}, nil
}

func (p *signingProgram) Sign(_ context.Context, r *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode([]byte(`{"alg":"RS256","kid":"` + signingKeyID + `","typ":"JWT"}`))
	hash := sha256.Sum256([]byte(header + "." + r.Claims))
	signature, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, hash[:])
	return &externaljwt.SignJWTResponse{Header: header, Signature: encode(signature)}, err
}

// serveSigner serves a signing program until the test ends, and returns the path of its socket.
func serveSigner(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	socket := "@keelson-" + strings.ToLower(rand.Text())
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	externaljwt.RegisterExternalJWTSignerServer(g, &signingProgram{key: key})
	go g.Serve(listener) // Serve returns after Stop
	t.Cleanup(g.Stop)
	return socket
}

// TestExternalProgramSignsTokens checks a server without a key of its own. The external program supplies the
// tokens, the public keys and the longest lifetime of tokens.
func TestExternalProgramSignsTokens(t *testing.T) {
	config := testConfig(t)
	config.Authentication.ServiceAccounts.SigningEndpoint = serveSigner(t)
	s := start(t, config)
	token := accountToken(t, s, "robot")
	c := httpClient(t, s, false)
	if a := apitest.Send(t, c, "GET", s.URL()+"/api", "", "Authorization", "Bearer "+token); a.Status != http.StatusOK {
		t.Errorf("a token of the program: %d %s", a.Status, a.Body)
	}
	parts := strings.Split(token, ".")
	forged := parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2]))
	if a := apitest.Send(t, c, "GET", s.URL()+"/api", "", "Authorization", "Bearer "+forged); a.Status != http.StatusUnauthorized {
		t.Errorf("a token of nobody: %d %s", a.Status, a.Body)
	}
	admin := httpClient(t, s, true)
	if a := apitest.Send(t, admin, "GET", s.URL()+serviceaccount.KeysPath, ""); !strings.Contains(a.Body, signingKeyID) {
		t.Errorf("keys that are told: %s", a.Body)
	}
	out := post(
		t, s, "/api/v1/namespaces/kube-system/serviceaccounts/robot/token", `{"spec":{"expirationSeconds":10000}}`,
		http.StatusCreated,
	)
	if life := out["spec"].(map[string]any)["expirationSeconds"]; life != 7200.0 {
		t.Errorf("a life of %v seconds", life)
	}
	if a := apitest.Send(t, admin, "GET", s.URL()+"/metrics", ""); !strings.Contains(
		a.Body, `apiserver_externaljwt_sign_request_total{code="OK"} 2`,
	) {
		t.Error("signatures are not counted")
	}
}

// TestLifeOfTokensOfAnotherSigner: a token may not be valid for longer than the signer allows.
func TestLifeOfTokensOfAnotherSigner(t *testing.T) {
	config := testConfig(t)
	config.Authentication.ServiceAccounts.SigningEndpoint = serveSigner(t)
	config.Authentication.ServiceAccounts.MaxExpiration = 3 * time.Hour
	const want = "service-account-max-token-expiration cannot be set longer than the token expiration supported by " +
		"service-account-signing-endpoint: 3h0m0s > 2h0m0s"
	if _, err := Start(t.Context(), config.Config, config.Options); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
