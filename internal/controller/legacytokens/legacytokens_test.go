package legacytokens

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// memory stores the objects of a server in memory.
type memory struct {
	mu      sync.Mutex // guards objects
	objects map[string]registry.Object
	updates chan string // receives the name of each updated object
}

func (m *memory) Lookup(_ context.Context, r schema.GroupResource, _, name string) (registry.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[r.Resource+"/"+name], nil
}

func (m *memory) Update(_ context.Context, r client.UpdateRequest) (registry.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[r.Resource.Resource+"/"+r.Name]
	if o == nil {
		return nil, apierr.NotFound(r.Resource.GroupResource(), r.Name)
	}
	if err := r.Change(o); err != nil {
		return nil, err
	}
	m.updates <- r.Name
	return o, nil
}

func (m *memory) Create(_ context.Context, r client.CreateRequest) (registry.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[r.Resource.Resource+"/"+r.Object.GetName()] = r.Object
	return r.Object, nil
}

func newTracker(day string) (*Tracker, *memory) {
	m := &memory{objects: map[string]registry.Object{}, updates: make(chan string, 10)}
	now, err := time.Parse(time.RFC3339, day+"T23:30:00-02:00") // already tomorrow in UTC
	if err != nil {
		panic(err)
	}
	return New(m, slog.New(slog.NewTextHandler(io.Discard, nil)), func() time.Time { return now }), m
}

func TestSince(t *testing.T) {
	for name, c := range map[string]struct {
		there map[string]string // nil: the ConfigMap does not exist
		want  string
	}{
		"none":     {nil, "2026-03-02"},
		"a date":   {map[string]string{sinceKey: "2025-01-01"}, "2025-01-01"},
		"no date":  {map[string]string{sinceKey: "yesterday"}, "2026-03-02"},
		"no entry": {map[string]string{}, "2026-03-02"},
	} {
		tracker, m := newTracker("2026-03-01")
		if c.there != nil {
			m.objects["configmaps/"+configMapName] = &corev1.ConfigMap{Data: c.there}
		}
		if err := tracker.ensureConfigMap(t.Context(), m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		o, _ := m.objects["configmaps/"+configMapName].(*corev1.ConfigMap)
		if o == nil || o.Data[sinceKey] != c.want {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestUsesAreNotedOnceADay(t *testing.T) {
	for label, written := range map[string]bool{"": true, "2026-03-01": true, "2026-03-02": false, "2026-03-03": false} {
		tracker, m := newTracker("2026-03-01")
		secret := &corev1.Secret{}
		secret.Name, secret.UID = "s", "u"
		if label != "" {
			secret.Labels = map[string]string{lastUsedLabel: label}
		}
		m.objects["secrets/s"] = secret
		tracker.Used(t.Context(), secret.DeepCopy())
		if !written {
			if len(tracker.writing) > 0 {
				t.Errorf("%q is written", label)
			}
			continue
		}
		if len(tracker.uses) != 1 {
			t.Fatalf("%q: %d uses are to be written", label, len(tracker.uses))
		}
		tracker.writeLabel(t.Context(), m, *<-tracker.uses)
		<-m.updates
		m.mu.Lock()
		if got := secret.Labels[lastUsedLabel]; got != "2026-03-02" {
			t.Errorf("%q becomes %q", label, got)
		}
		m.mu.Unlock()
	}
}
