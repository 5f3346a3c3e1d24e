package keelson_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson"
)

// otherTest is a test whose end and result are controlled by the test that contains it.
type otherTest struct {
	*testing.T
	failed   bool
	lines    []string
	cleanups []func()
}

func (t *otherTest) Failed() bool { return t.failed }
func (t *otherTest) Logf(text string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(text, args...))
}
func (t *otherTest) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *otherTest) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

// warn has the server log a warning: it refuses a write, because a webhook does not answer.
func warn(t *testing.T, s *keelson.Server) {
	t.Helper()
	none, nobody := admissionregistrationv1.SideEffectClassNone, "https://127.0.0.1:1"
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "broken.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &nobody},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
		}},
	}
	client := clientset(t, s)
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(
		t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Update(t.Context(), configMap("a"), metav1.UpdateOptions{}); err == nil {
		t.Fatal("the webhook was not called")
	}
}

// TestForTestLogs checks that the server of a test logs its warnings to that test until it ends, and a server from
// a snapshot to its own test. A test that failed also logs the last requests.
func TestForTestLogs(t *testing.T) {
	first, second := &otherTest{T: t}, &otherTest{T: t, failed: true}
	s := keelson.ForTest(first, inProcess)
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	warn(t, s)
	first.end()
	if len(first.lines) == 0 || !strings.Contains(first.lines[0], "broken.example.com") || !strings.Contains(first.lines[0], "level=WARN") {
		t.Errorf("the warning was not logged: %q", first.lines)
	}
	for _, line := range first.lines {
		if strings.Contains(line, "requests:") {
			t.Errorf("a test that has not failed has logged %s", line)
		}
	}

	late, err := snapshot.Start(t.Context()) // with the log of the first test
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, late)
	before := len(first.lines)
	warn(t, late)
	if after := first.lines[before:]; len(after) > 0 {
		t.Errorf("logged after the end of the test: %q", after)
	}

	fork := snapshot.ForTest(second)
	for range 60 {
		if _, err := clientset(t, fork).CoreV1().Pods("other").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	warn(t, fork)
	second.end()
	all := strings.Join(second.lines, "\n")
	if !strings.Contains(all, "broken.example.com") || len(first.lines) > before {
		t.Errorf("the warning of the second server was logged to %q and %q", first.lines[before:], second.lines)
	}
	if i := strings.Index(all, "the last 50 of 63 requests:"); i < 0 || strings.Count(all[i:], " list /api/v1/namespaces/other/pods 200 ") != 47 ||
		!strings.Contains(all[i:], " update /api/v1/namespaces/default/configmaps/a 500 ") {
		t.Errorf("the test that has failed has logged %s", all)
	}
}
