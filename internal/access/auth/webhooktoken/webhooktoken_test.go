package webhooktoken

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/tokencache"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

var own = []string{"https://kubernetes.default.svc"}

// reviewer is a webhook with a fixed response.
type reviewer struct {
	*httptest.Server
	asked  atomic.Int64
	answer func(*authenticationv1.TokenReview) int
}

func newReviewer(t *testing.T, answer func(*authenticationv1.TokenReview) int) *reviewer {
	t.Helper()
	r := &reviewer{answer: answer}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.asked.Add(1)
		review := &authenticationv1.TokenReview{}
		if err := json.NewDecoder(q.Body).Decode(review); err != nil {
			t.Error(err)
		}
		code := r.answer(review)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *reviewer) open(t *testing.T, version string) *Authenticator {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	text := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority: "+
			"%q}}]\nusers: [{name: u, user: {token: secret}}]\ncontexts: [{name: x, context: {cluster: c, user: "+
			"u}}]\ncurrent-context: x\n", r.URL+"/review", ca)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := webhook.FromKubeconfig(file, os.ReadFile, webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(
		Options{Client: client, Version: version, Audiences: own,
			Backoff: webhook.Backoff{Tries: 3, First: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReview(t *testing.T) {
	jane := authenticationv1.UserInfo{Username: "jane", UID: "1", Groups: []string{"dev"},
		Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	for _, version := range []string{"v1", "v1beta1"} {
		for name, c := range map[string]struct {
			status authenticationv1.TokenReviewStatus
			meant  []string // nil: nobody's
			err    string
		}{
			"a user": {authenticationv1.TokenReviewStatus{Authenticated: true, User: jane}, own, ""},
			"audiences": {authenticationv1.TokenReviewStatus{Authenticated: true, User: jane,
				Audiences: []string{"x", own[0]}}, own, ""},
			"another's audience": {authenticationv1.TokenReviewStatus{Authenticated: true, User: jane, Audiences: []string{"x"}},
				nil, ""},
			"nobody's": {authenticationv1.TokenReviewStatus{User: jane}, nil, ""},
			"an error": {authenticationv1.TokenReviewStatus{Error: "expired"}, nil, "expired"},
		} {
			r := newReviewer(t, func(review *authenticationv1.TokenReview) int {
				if review.APIVersion != "authentication.k8s.io/"+version || review.Spec.Token != "tok" ||
					!slices.Equal(review.Spec.Audiences, own) {
					t.Errorf("asked %+v", review)
				}
				review.Status = c.status
				return http.StatusCreated
			})
			identity, err := r.open(t, version).AuthenticateToken(t.Context(), authn.NewBearerToken("tok"), own)
			switch {
			case c.meant == nil:
				if identity != nil || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
					t.Errorf("%s: %+v %v", name, identity, err)
				}
			default:
				want := &request.User{Name: "jane", UID: "1", Groups: []string{"dev", "system:authenticated"},
					Extra: map[string][]string{"k": {"v"}}}
				if err != nil || !reflect.DeepEqual(identity.User, want) || !slices.Equal(identity.Audiences, c.meant) {
					t.Errorf("%s: %+v %v", name, identity, err)
				}
			}
		}
	}
}

func TestWebhookFailureIsNotCached(t *testing.T) {
	var code atomic.Int64
	code.Store(http.StatusInternalServerError)
	r := newReviewer(t, func(review *authenticationv1.TokenReview) int {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
			User: authenticationv1.UserInfo{Username: "jane"}}
		return int(code.Load())
	})
	recorder := tokencache.NewMetrics(metrics.New(nil, metrics.Options{}))
	a := tokencache.NewAuthenticator(r.open(t, "v1"), time.Hour, time.Hour, time.Now, recorder)
	token := authn.NewBearerToken("tok")
	if identity, err := a.AuthenticateToken(t.Context(), token, own); identity != nil || err == nil ||
		strings.Contains(err.Error(), "tok") && strings.Contains(err.Error(), "secret") {
		t.Errorf("%+v %v", identity, err)
	}
	if n := r.asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	code.Store(http.StatusCreated)
	for range 2 {
		if identity, err := a.AuthenticateToken(t.Context(), token, own); identity == nil {
			t.Error(err)
		}
	}
	if n := r.asked.Load(); n != 4 {
		t.Errorf("asked %d times, want 4: an answer is remembered", n)
	}
}

func TestResponsesOfAnotherKindAreErrors(t *testing.T) {
	r := newReviewer(t, func(review *authenticationv1.TokenReview) int {
		review.Kind = "SubjectAccessReview"
		review.Status.Authenticated = true
		return http.StatusCreated
	})
	if identity, err := r.open(t, "v1").AuthenticateToken(t.Context(), authn.NewBearerToken("tok"),
		own); identity != nil || err == nil {
		t.Errorf("%+v %v", identity, err)
	}
}

func TestVersion(t *testing.T) {
	if _, err := New(Options{Version: "v2"}); err == nil {
		t.Error("v2 is accepted")
	}
}

// TestAnswersAreBounded checks that an answer is refused if its user takes more memory than a user may take.
func TestAnswersAreBounded(t *testing.T) {
	r := newReviewer(t, nil)
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,`+
			`"user":{"username":%q}}}`, strings.Repeat("x", 2*maxAnswer))
	})
	id, err := r.open(t, "v1").AuthenticateToken(t.Context(), authn.NewBearerToken("t"), own)
	if err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("%v, the error is %v", id != nil, err)
	}
}
