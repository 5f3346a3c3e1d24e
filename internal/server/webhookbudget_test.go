package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// budgetTest is a server with a budget of five seconds, whose clock stands still unless a test or a webhook advances it.
type budgetTest struct {
	*testing.T
	*hooks
	url  string
	c    *http.Client
	log  *lockedBuffer
	past atomic.Int64 // how far the clock was advanced
	dead atomic.Bool  // the webhook /dead takes four seconds and fails
	n    int          // writes
}

func newBudgetTest(t *testing.T, budget time.Duration) *budgetTest {
	b := &budgetTest{T: t, hooks: newHooks(t), log: &lockedBuffer{}}
	config, begin := testConfig(t), time.Now()
	config.Admission.WebhookBudget = budget
	config.now = func() time.Time { return begin.Add(time.Duration(b.past.Load())) }
	config.Diagnostics.Log = slog.New(slog.NewTextHandler(b.log, nil))
	s := start(t, config)
	b.url, b.c = s.URL(), httpClient(t, s, true)
	b.dead.Store(true)
	b.on("/dead", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if !b.dead.Load() {
			return allow(r)
		}
		b.past.Add(int64(4 * time.Second))
		kind := admissionv1.PatchType("none") // of which there is no patch: the response is not valid
		return &admissionv1.AdmissionResponse{Allowed: true, PatchType: &kind}
	})
	return b
}

// write creates a ConfigMap. It reports whether the webhook was called, and the warning.
func (b *budgetTest) write(status int) (asked bool, warning string) {
	b.Helper()
	b.n++
	a := sendJSON(b.T, b.c, "POST", b.url+configMapsPath, configMapNamed(fmt.Sprint("w", b.n)))
	if a.status != status {
		b.Errorf("write %d: %d %s, want %d", b.n, a.status, a.body, status)
	}
	return len(b.requests("/dead")) > 0, a.header.Get("Warning")
}

// wants writes, and checks whether the webhook was called; a write without it must be warned about.
func (b *budgetTest) wants(called ...bool) {
	b.Helper()
	const skipped = `299 - "admission webhook \"dead.example.com\" was skipped, because its calls keep failing"`
	for _, want := range called {
		asked, warning := b.write(http.StatusCreated)
		if asked != want || (warning == skipped) == asked {
			b.Errorf("write %d: the webhook was called: %t, want %t; warning %q", b.n, asked, want, warning)
		}
	}
}

// TestWebhookBudget: a webhook that keeps failing is skipped, tried again, and forgotten with its
// configuration.
func TestWebhookBudget(t *testing.T) {
	for _, of := range []struct{ kind, resource, label string }{
		{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validating"},
		{"MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "admit"},
	} {
		b := newBudgetTest(t, 5*time.Second)
		path := b.url + webhookConfigurations + of.resource
		body := b.configuration(of.kind, "dead", "/dead", `,"failurePolicy":"Ignore"`)
		if a := sendJSON(t, b.c, "POST", path, body); a.status != http.StatusCreated {
			t.Fatal(a.status, a.body)
		}
		b.wants(true, true, false, false)
		if log := b.log.String(); strings.Count(log, "a webhook is skipped, because") != 1 {
			t.Errorf("the log: %s", log)
		}
		b.past.Add(int64(30 * time.Second))
		b.wants(true, false)
		b.past.Add(int64(30 * time.Second))
		b.dead.Store(false)
		b.wants(true, true)
		if log := b.log.String(); strings.Count(log, "a webhook that was skipped is called again") != 1 {
			t.Errorf("the log: %s", log)
		}
		b.dead.Store(true)
		b.wants(true, true, false)
		change := `{"metadata":{"annotations":{"a":"b"}}}`
		if a := sendJSON(
			t, b.c, "PATCH", path+"/dead", change, "Content-Type", "application/merge-patch+json",
		); a.status != http.StatusOK {
			t.Fatal(a.status, a.body)
		}
		b.wants(true)
		counted := call(t, b.c, "GET", b.url+"/metrics").body
		want := `apiserver_admission_webhook_skipped_total{name="dead.example.com",type="` + of.label + `"} 4`
		if !strings.Contains(counted, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestWebhookBudgetIsForIgnore: a webhook whose failure refuses the write is never skipped, nor is any without a budget.
func TestWebhookBudgetIsForIgnore(t *testing.T) {
	for _, test := range []struct {
		budget time.Duration
		fields string
		status int
	}{{5 * time.Second, `,"failurePolicy":"Fail"`, http.StatusInternalServerError}, {0, `,"failurePolicy":"Ignore"`, 201}} {
		b := newBudgetTest(t, test.budget)
		body := b.configuration("ValidatingWebhookConfiguration", "dead", "/dead", test.fields)
		path := b.url + webhookConfigurations + "validatingwebhookconfigurations"
		if a := sendJSON(t, b.c, "POST", path, body); a.status != http.StatusCreated {
			t.Fatal(a.status, a.body)
		}
		for range 5 {
			if asked, warning := b.write(test.status); !asked || warning != "" {
				t.Errorf("%s: the webhook was not called: %s", test.fields, warning)
			}
		}
	}
}
