package plugintest

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// budgetTest is a server with a budget of five seconds, whose clock stands still unless a test or a webhook advances it.
type budgetTest struct {
	*testing.T
	*apitest.Webhooks
	s    *servertest.Server
	log  apitest.Log
	past atomic.Int64 // how far the clock was advanced
	dead atomic.Bool  // the webhook /dead takes four seconds and fails
	n    int          // writes
}

func newBudgetTest(t *testing.T, budget time.Duration) *budgetTest {
	b := &budgetTest{T: t, Webhooks: apitest.NewWebhooks(t)}
	config, begin := servertest.Default(), time.Now()
	config.Admission.WebhookBudget = budget
	config.Now = func() time.Time { return begin.Add(time.Duration(b.past.Load())) }
	config.Diagnostics.Log = slog.New(slog.NewTextHandler(&b.log, nil))
	b.s = servertest.Start(t, config)
	b.dead.Store(true)
	b.On("/dead", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if !b.dead.Load() {
			return apitest.Allow(r)
		}
		b.past.Add(int64(4 * time.Second))
		kind := admissionv1.PatchType("none") // a type that does not exist, so that the response is not valid
		return &admissionv1.AdmissionResponse{Allowed: true, PatchType: &kind}
	})
	return b
}

// write creates a ConfigMap. It reports whether the webhook was called, and the warning.
func (b *budgetTest) write(status int) (asked bool, warning string) {
	b.Helper()
	b.n++
	a := b.s.Send("POST", apitest.ConfigMapsPath, apitest.ConfigMap(fmt.Sprint("w", b.n)))
	if a.Status != status {
		b.Errorf("write %d: %d %s, want %d", b.n, a.Status, a.Body, status)
	}
	return len(b.Requests("/dead")) > 0, a.Header.Get("Warning")
}

// wants does one write for each of called, and checks whether the webhook was called. A write that skips it must
// have a warning.
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

// TestWebhookBudget checks that a webhook that keeps failing is skipped, that it is tried again, and that it is
// called again after its configuration has changed.
func TestWebhookBudget(t *testing.T) {
	for kind, label := range map[string]string{
		"ValidatingWebhookConfiguration": "validating", "MutatingWebhookConfiguration": "admit",
	} {
		b := newBudgetTest(t, 5*time.Second)
		path := b.Configure(b.s.Client, kind, "dead", "/dead", `,"failurePolicy":"Ignore"`)
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
		b.s.Patch(path, `{"metadata":{"annotations":{"a":"b"}}}`)
		b.wants(true)
		want := `apiserver_admission_webhook_skipped_total{name="dead.example.com",type="` + label + `"} 4`
		if !strings.Contains(b.s.Get("/metrics"), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestWebhookBudgetIsForIgnore checks that a webhook whose failure refuses the write is never skipped, and that
// none is skipped without a budget.
func TestWebhookBudgetIsForIgnore(t *testing.T) {
	for _, test := range []struct {
		budget time.Duration
		fields string
		status int
	}{{5 * time.Second, `,"failurePolicy":"Fail"`, http.StatusInternalServerError}, {0, `,"failurePolicy":"Ignore"`, 201}} {
		b := newBudgetTest(t, test.budget)
		b.Configure(b.s.Client, "ValidatingWebhookConfiguration", "dead", "/dead", test.fields)
		for range 5 {
			if asked, warning := b.write(test.status); !asked || warning != "" {
				t.Errorf("%s: the webhook was not called: %s", test.fields, warning)
			}
		}
	}
}
