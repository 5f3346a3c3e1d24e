package imagepolicy

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// hook is a webhook that gives its answers one after the other, and repeats the last one. It records the requests.
type hook struct {
	*httptest.Server
	mu      sync.Mutex
	answers []answer
	asked   []string // guarded by mu
}

type answer struct {
	code int
	body string
}

func newHook(t *testing.T, answers ...answer) *hook {
	t.Helper()
	h := &hook{answers: answers}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		next := h.answers[min(len(h.asked), len(h.answers)-1)]
		h.asked = append(h.asked, string(body))
		h.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(next.code)
		fmt.Fprint(w, next.body)
	}))
	t.Cleanup(h.Close)
	return h
}

// calls returns the number of calls, and the last request.
func (h *hook) calls() (int, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked) == 0 {
		return 0, ""
	}
	return len(h.asked), h.asked[len(h.asked)-1]
}

// plugged returns the plug-in with a kubeconfig for a webhook. more are further members of its configuration.
func plugged(t *testing.T, h *hook, more string, log io.Writer) admission.Plugin {
	t.Helper()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": h.URL + "/images", "certificate-authority-data": ca,
		}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := DecodeConfig(fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q, retryBackoff: 1%s}", file, more))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Plugin(c, os.ReadFile, webhook.Options{}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pod(image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", Annotations: map[string]string{
			"x.image-policy.k8s.io/ticket": "7", "other": "y",
		}},
		Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Image: image}},
			InitContainers: []corev1.Container{{Image: "init"}},
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "debug"}},
			},
		},
	}
}

// recorded returns a context with an audit record, and that record.
func recorded(t *testing.T) (context.Context, *audit.Record) {
	r := audit.NewRecord(nil, nil, "id", time.Now())
	r.Decide(audit.Settings{Level: audit.Metadata})
	return audit.With(t.Context(), r), r
}

const allow, deny = `{"status":{"allowed":true}}`, `{"status":{"allowed":false,"reason":"old"}}`

func TestAnswers(t *testing.T) {
	const forbidden = `pods "p" is forbidden: `
	for name, c := range map[string]struct {
		answers []answer
		want    string // a part of the error when the plug-in fails closed; "" is none
		failure bool   // the webhook itself failed
		calls   int
	}{
		"allowed":       {[]answer{{200, allow}}, "", false, 1},
		"denied":        {[]answer{{200, deny}}, forbidden + "image policy webhook backend denied one or more images: old", false, 1},
		"no reason":     {[]answer{{200, `{"status":{}}`}}, forbidden + "one or more images rejected by webhook backend", false, 1},
		"whole review":  {[]answer{{201, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true}}`}}, "", false, 1},
		"another kind":  {[]answer{{200, `{"apiVersion":"v1","kind":"Status","status":{"allowed":true}}`}}, forbidden + "the answer of the webhook has", true, 1},
		"not JSON":      {[]answer{{200, "yes"}}, forbidden + "the answer of the webhook is not an ImageReview", true, 1},
		"empty":         {[]answer{{204, ""}}, forbidden, true, 1},
		"too long":      {[]answer{{200, `{"status":{"allowed":true,"reason":"` + strings.Repeat("x", 2<<20) + `"}}`}}, forbidden, true, 1},
		"not found":     {[]answer{{404, ""}}, forbidden, true, 1},
		"failing":       {[]answer{{500, ""}}, forbidden, true, 5},
		"failing twice": {[]answer{{500, ""}, {500, ""}, {200, allow}}, "", false, 3},
	} {
		for _, open := range []bool{false, true} {
			h := newHook(t, c.answers...)
			var log bytes.Buffer
			p := plugged(t, h, fmt.Sprintf(", defaultAllow: %v", open), &log)
			ctx, record := recorded(t)
			err := p.Validate(ctx, admissiontest.Creation(corev1.Resource("pods"), pod("a")))
			allowed := c.want == "" || c.failure && open
			if allowed != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%s, open %v: %v", name, open, err)
			}
			if n, _ := h.calls(); n != c.calls {
				t.Errorf("%s, open %v: %d calls", name, open, n)
			}
			_, annotated := record.Annotation("imagepolicywebhook.image-policy.k8s.io/failed-open")
			if annotated != (c.failure && open) || annotated != strings.Contains(log.String(), "failed") {
				t.Errorf("%s, open %v: annotated %v, log %s", name, open, annotated, &log)
			}
		}
	}
	h := newHook(t, answer{200, allow})
	p := plugged(t, h, "", io.Discard)
	h.Close()
	err := p.Validate(t.Context(), admissiontest.Creation(corev1.Resource("pods"), pod("a")))
	if err == nil || !strings.HasPrefix(err.Error(), forbidden+`Post "https://`) {
		t.Errorf("no webhook: %v", err)
	}
}

func TestWhatIsAsked(t *testing.T) {
	h := newHook(t, answer{200, allow})
	p := plugged(t, h, ", allowTTL: -1", io.Discard)
	of := func(subresource string) *admission.Attributes {
		a := admissiontest.Change(pods, pod("a"), pod("a"))
		a.Subresource = subresource
		return a
	}
	created, removed := admissiontest.Creation(pods, pod("a")), of("")
	removed.Operation, removed.Object = admission.Delete, nil
	const review = `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{},"spec":{"containers":[%s],` +
		`"annotations":{"x.image-policy.k8s.io/ticket":"7"},"namespace":"n"},"status":{"allowed":false}}`
	whole := fmt.Sprintf(review, `{"image":"a"},{"image":"init"}`)
	for name, c := range map[string]struct {
		a    *admission.Attributes
		want string
	}{
		"create":               {created, whole},
		"update":               {of(""), whole},
		"ephemeral containers": {of("ephemeralcontainers"), fmt.Sprintf(review, `{"image":"debug"}`)},
		"status":               {of("status"), ""},
		"delete":               {removed, ""},
		"another kind":         {admissiontest.Creation(corev1.Resource("podtemplates"), pod("a")), ""},
	} {
		before, _ := h.calls()
		if err := p.Validate(t.Context(), c.a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		after, asked := h.calls()
		if (after > before) != (c.want != "") || c.want != "" && asked != c.want {
			t.Errorf("%s: %d calls; asked %s", name, after-before, asked)
		}
	}
}

func TestAnswersAreCached(t *testing.T) {
	long := `{"status":{"allowed":false,"reason":"` + strings.Repeat("x", maxCachedBytes) + `"}}`
	for name, c := range map[string]struct {
		config, answer string
		cached         bool
	}{
		"allowed":               {"", allow, true},
		"denied":                {"", deny, true},
		"allowed, not to cache": {", allowTTL: -1", allow, false},
		"denied, not to cache":  {", denyTTL: -1", deny, false},
		"failure":               {"", "no", false},
		"long":                  {"", long, false},
	} {
		h := newHook(t, answer{200, c.answer})
		p := plugged(t, h, c.config, io.Discard)
		var errs [2]error
		for i := range errs {
			errs[i] = p.Validate(t.Context(), admissiontest.Creation(pods, pod("a")))
		}
		if n, _ := h.calls(); (n == 1) != c.cached || (errs[0] == nil) != (errs[1] == nil) {
			t.Errorf("%s: %d calls, %v", name, n, errs)
		}
		_ = p.Validate(t.Context(), admissiontest.Creation(pods, pod("b"))) // the calls count
		if n, asked := h.calls(); (n == 2) != c.cached || !strings.Contains(asked, `"b"`) {
			t.Errorf("%s: %d calls after another image", name, n)
		}
	}
}

func TestAuditAnnotations(t *testing.T) {
	const annotated = `{"status":{"allowed":true,"auditAnnotations":{"ok":"1","a/b":"2","":"3","no way":"4"}}}`
	p := plugged(t, newHook(t, answer{200, annotated}), "", io.Discard)
	// The second time the answer comes from the cache.
	for range 2 {
		ctx, record := recorded(t)
		if err := p.Validate(ctx, admissiontest.Creation(pods, pod("a"))); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"ok": "1", "a/b": "", "": "", "no way": ""} {
			if got, _ := record.Annotation(auditPrefix + key); got != want {
				t.Errorf("%q: %q, want %q", key, got, want)
			}
		}
	}
}

func TestConfig(t *testing.T) {
	const file = "imagePolicy: {kubeConfigFile: f"
	for text, want := range map[string]string{
		file + "}": "{f 5m0s 30s 500ms false}",
		file + ", allowTTL: -1, denyTTL: -1, retryBackoff: -1, defaultAllow: true}": "{f 0s 0s 0s true}",
		file + ", allowTTL: 1800, denyTTL: 1, retryBackoff: 7}":                     "{f 30m0s 1s 7ms false}",
		file + ", allowTTL: 1801}":                                                  "imagePolicy.allowTTL: valid value is between 1s and 30m0s",
		file + ", denyTTL: -2}":                                                     "imagePolicy.denyTTL: valid value is between 1s and 30m0s",
		file + ", retryBackoff: 9223372036854775807}":                               "imagePolicy.retryBackoff: valid value is between 1ns and 5m0s",
		file + ", allowTll: 1}":                                                     `unknown field "imagePolicy.allowTll"`,
		"[":                                                                         "yaml",
	} {
		c, err := DecodeConfig([]byte(text))
		if got := fmt.Sprint(c); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	if _, err := DecodeConfig(nil); err == nil || err.Error() != "no config specified" {
		t.Errorf("no configuration: %v", err)
	}
	if _, err := Plugin(Config{KubeConfigFile: "/does/not/exist"}, os.ReadFile, webhook.Options{}, slog.Default()); err == nil {
		t.Error("a missing kubeconfig was accepted")
	}
}

// TestHangingWebhook checks that a pod is refused at the end of its own request if the webhook does not answer.
func TestHangingWebhook(t *testing.T) {
	h := newHook(t, answer{200, allow})
	asked, end := make(chan struct{}), make(chan struct{})
	h.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked) // panics if the call is repeated
		<-end
	})
	defer close(end)
	p := plugged(t, h, "", io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	err := p.Validate(ctx, admissiontest.Creation(pods, pod("a")))
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v", err)
	}
}
