package auditing

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource"
)

// TestOpen checks which configurations lead to an audit log.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "audit.log")
	for _, c := range []struct {
		policy, log string
		audited     bool
		maxObject   int
	}{
		{"", log, false, 0}, {policy, "", false, 0}, {policy, log, true, 7},
	} {
		conf := config.Default().Audit
		conf.PolicyFile, conf.Log.Path, conf.Log.Truncate, conf.Log.MaxEventSize = c.policy, c.log, true, 7
		a, err := Open(Options{Config: &conf, Budget: time.Second, FlushTime: time.Second, Log: slog.New(slog.DiscardHandler)})
		if err != nil || (a != nil) != c.audited {
			t.Errorf("%+v: audited %t, %v", c, a != nil, err)
		}
		if a != nil && a.maxObject != int64(c.maxObject) {
			t.Errorf("objects of %d bytes are accepted, want %d", a.maxObject, c.maxObject)
		}
		for range 2 { // the second time there is nothing to do
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestObjects checks that newObjects knows the built-in kinds and the kinds that only subresources use, and no
// others.
func TestObjects(t *testing.T) {
	make := newObjects(resource.Kinds(features.Gates{}))
	if _, ok := make(corev1.SchemeGroupVersion.WithKind("Pod")).(*corev1.Pod); !ok {
		t.Error("no Pod")
	}
	if _, ok := make(autoscalingv1.SchemeGroupVersion.WithKind("Scale")).(*autoscalingv1.Scale); !ok {
		t.Error("no Scale")
	}
	if o := make(corev1.SchemeGroupVersion.WithKind("Widget")); o != nil {
		t.Errorf("an object of an unknown kind: %T", o)
	}
}
