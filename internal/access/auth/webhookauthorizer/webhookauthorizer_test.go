package webhookauthorizer

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// notes is an Observer that records its calls.
type notes struct{ list []string }

func (n *notes) AuthorizationWebhook(name, result string, _ time.Duration) {
	n.list = append(n.list, name+" "+result)
}
func (n *notes) AuthorizationWebhookFailOpen(name, result string) {
	n.list = append(n.list, name+" fail open "+result)
}
func (n *notes) AuthorizationMatch(name string, _ time.Duration, failed, excluded bool) {
	n.list = append(n.list, fmt.Sprintf("%s match failed=%v excluded=%v", name, failed, excluded))
}

// hook is a webhook that responds with a fixed status and records the reviews that it gets.
type hook struct {
	*httptest.Server
	code   int
	status string
	asked  atomic.Pointer[map[string]any]
	calls  atomic.Int32
}

func newHook(t *testing.T, code int, status string) *hook {
	t.Helper()
	h := &hook{code: code, status: status}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var review map[string]any
		if err := json.Unmarshal(body, &review); err != nil {
			t.Error(err)
		}
		h.asked.Store(&review)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(h.code)
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":"SubjectAccessReview","status":%s}`, review["apiVersion"], h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) authorizer(t *testing.T, n *notes, change func(*Options)) *Authorizer {
	t.Helper()
	client, err := webhook.New(webhook.Target{URL: h.URL, CABundle: authority(h.Server)}, webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Name: "hook", Client: client, Version: "v1", Timeout: 5 * time.Second, Observe: n}
	if change != nil {
		change(&o)
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var listing = authz.Attributes{
	User:      &request.User{Name: "jane", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}},
	Info:      &request.Info{Verb: "list", Version: "v1", Resource: "pods", Namespace: "ns"},
	Selectors: authz.NewSelectors("spec.nodeName=n", "a in (b),!c"),
}

func TestAnswersDecide(t *testing.T) {
	for status, want := range map[string]authz.Decision{
		`{"allowed":true,"reason":"r"}`:                authz.Allow,
		`{"allowed":false,"reason":"r"}`:               authz.NoOpinion,
		`{"allowed":false,"denied":true,"reason":"r"}`: authz.Deny,
	} {
		decision, reason, err := newHook(t, 200, status).authorizer(t, &notes{}, nil).Authorize(t.Context(), listing)
		if decision != want || reason != "r" || err != nil {
			t.Errorf("%s: %v %q %v", status, decision, reason, err)
		}
	}
	decision, _, err := newHook(t, 200, `{"allowed":true,"denied":true}`).authorizer(t, &notes{},
		nil).Authorize(t.Context(), listing)
	if decision != authz.Deny || err == nil {
		t.Errorf("both: %v %v", decision, err)
	}
}

func TestReviewIsSentToTheWebhook(t *testing.T) {
	for version, groups := range map[string]string{"v1": "groups", "v1beta1": "group"} {
		h := newHook(t, 201, `{"allowed":true}`)
		a := h.authorizer(t, &notes{}, func(o *Options) { o.Version = version })
		if decision, _, err := a.Authorize(t.Context(), listing); decision != authz.Allow || err != nil {
			t.Fatalf("%s: %v %v", version, decision, err)
		}
		asked := *h.asked.Load()
		spec := asked["spec"].(map[string]any)
		attributes := spec["resourceAttributes"].(map[string]any)
		if asked["apiVersion"] != "authorization.k8s.io/"+version || spec["user"] != "jane" || spec["uid"] != "u" ||
			spec[groups] == nil || spec["extra"] == nil {
			t.Errorf("%s: asked %v", version, asked)
		}
		text, err := json.Marshal(attributes)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`"namespace":"ns"`, `"verb":"list"`, `"resource":"pods"`, `"version":"v1"`,
			`{"key":"spec.nodeName","operator":"In","values":["n"]}`, `{"key":"a","operator":"In","values":["b"]}`,
			`{"key":"c","operator":"DoesNotExist"}`,
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: %s lacks %s", version, text, want)
			}
		}
	}
}

func TestResponsesAreCached(t *testing.T) {
	h := newHook(t, 200, `{"allowed":true}`)
	a := h.authorizer(t, &notes{}, func(o *Options) { o.AllowedTTL = time.Minute })
	ask := func(at authz.Attributes) {
		t.Helper()
		if _, _, err := a.Authorize(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	ask(listing)
	ask(listing)
	if n := h.calls.Load(); n != 1 {
		t.Errorf("%d calls for one question", n)
	}
	other := listing
	other.User = &request.User{Name: "joe"}
	ask(other)
	other.Selectors = nil
	ask(other)
	if n := h.calls.Load(); n != 3 {
		t.Errorf("%d calls for three questions", n)
	}
	h.status = `{"allowed":false}`
	long := listing
	info := *listing.Info
	info.Name = strings.Repeat("x", maxCachedBytes)
	long.Info = &info
	for range 2 {
		ask(long)
	}
	refused := listing
	refused.User = &request.User{Name: "refused"}
	for range 2 {
		ask(refused)
	}
	if n := h.calls.Load(); n != 7 {
		t.Errorf("%d calls: long questions and refusals without a time are not kept", n)
	}
}

func TestFailures(t *testing.T) {
	for policy, want := range map[authz.Decision]string{
		authz.NoOpinion: "hook error;hook fail open error", authz.Deny: "hook error",
	} {
		h := newHook(t, 400, `{}`)
		var n notes
		decision, _, err := h.authorizer(t, &n, func(o *Options) { o.OnError = policy }).Authorize(t.Context(), listing)
		if decision != policy || err == nil || strings.Join(n.list, ";") != want {
			t.Errorf("%v: %v %v, noted %q", policy, decision, err, n.list)
		}
	}
	h := newHook(t, 500, `{}`)
	a := h.authorizer(t, &notes{}, func(o *Options) { o.Backoff = webhook.Backoff{Tries: 3} })
	if _, _, err := a.Authorize(t.Context(), listing); err == nil || h.calls.Load() != 3 {
		t.Errorf("%v after %d calls, want 3", err, h.calls.Load())
	}
}

func TestConditionsChooseWhatIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		conditions []string
		asked      bool
		decision   authz.Decision // of a webhook that denies, failing with Deny
		failed     bool
	}{
		"met": {[]string{`request.user == 'jane'`, `request.resourceAttributes.namespace == 'ns'`}, true,
			authz.Allow, false},
		"one is not": {[]string{`request.user == 'jane'`, `request.resourceAttributes.verb == 'get'`}, false,
			authz.NoOpinion, false},
		"groups and extra": {[]string{`'g' in request.groups && 'v' in request.extra['k']`}, true, authz.Allow, false},
		"a selector": {[]string{`request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == ` +
			`'spec.nodeName' && r.values == ['n'])`}, true, authz.Allow, false},
		"a path":   {[]string{`has(request.nonResourceAttributes)`}, false, authz.NoOpinion, false},
		"an error": {[]string{`request.nonResourceAttributes.path == '/x'`}, false, authz.Deny, true},
		"an error and a no": {[]string{`request.nonResourceAttributes.path == '/x'`, `false`}, false, authz.NoOpinion,
			false},
		"an error and a yes": {[]string{`request.nonResourceAttributes.path == '/x'`, `true`}, false, authz.Deny, true},
	} {
		conditions, errs := Compile(c.conditions, nil)
		if len(errs) > 0 {
			t.Fatalf("%s: %v", name, errs)
		}
		h := newHook(t, 200, `{"allowed":true}`)
		var n notes
		a := h.authorizer(t, &n, func(o *Options) { o.Conditions, o.OnError = conditions, authz.Deny })
		decision, _, err := a.Authorize(t.Context(), listing)
		if decision != c.decision || (err != nil) != c.failed || (h.calls.Load() == 1) != c.asked {
			t.Errorf("%s: %v %v, %d calls", name, decision, err, h.calls.Load())
		}
		excluded := !c.asked && !c.failed
		if !slices.Contains(n.list, fmt.Sprintf("hook match failed=%v excluded=%v", c.failed, excluded)) {
			t.Errorf("%s: noted %q", name, n.list)
		}
	}
}

func TestInvalidConditions(t *testing.T) {
	for expression, want := range map[string]string{
		"":                      "expression: Required value",
		"request.nope == 'x'":   "compilation failed",
		"request.user":          "must evaluate to bool but got string",
		"request.user.nope > 1": "compilation failed",
	} {
		if _, errs := Compile([]string{expression}, nil); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%q: %v, want %q", expression, errs, want)
		}
	}
	if _, errs := Compile([]string{"true", "true"}, nil); len(errs) != 1 || errs[0].Type != "FieldValueDuplicate" {
		t.Errorf("twice: %v", errs)
	}
	if _, errs := Compile(make([]string, maxConditions+1), nil); len(errs) != 1 || errs[0].Type != "FieldValueTooMany" {
		t.Errorf("too many: %v", errs)
	}
	if c, errs := Compile(nil, nil); c != nil || len(errs) > 0 {
		t.Errorf("none: %v %v", c, errs)
	}
}

// authority returns the certificate of a test server as PEM text.
func authority(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// TestAnswersAreBounded checks that an answer that is too large counts as a failure of the webhook.
func TestAnswersAreBounded(t *testing.T) {
	h := newHook(t, http.StatusCreated, `{"allowed":true,"reason":"`+strings.Repeat("x", 2*maxAnswer)+`"}`)
	if got, _, err := h.authorizer(t, &notes{}, nil).Authorize(t.Context(), listing); got == authz.Allow || err == nil {
		t.Errorf("%v, the error is %v", got, err)
	}
}
