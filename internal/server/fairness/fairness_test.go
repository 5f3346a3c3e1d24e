package fairness

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
	resources "github.com/keelson-dev/keelson/internal/resource/flowcontrol"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// newRegistry returns a registry of flow schemas and priority levels.
func newRegistry(t *testing.T) *registry.Registry {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		c.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	reg, err := registry.New(resources.Kinds(), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// TestConfigurationIsFollowed creates a flow schema after the start, and checks that the conditions of all flow schemas are written
// then.
func TestConfigurationIsFollowed(t *testing.T) {
	reg, log := newRegistry(t), slog.New(slog.DiscardHandler)
	work := background.New(log)
	t.Cleanup(func() { work.Stop(context.Background()) })
	var updated atomic.Int64
	_, err := Start(t.Context(), Options{
		ReadOnly: 4, Mutating: 2, Registry: reg, Custom: func(func(string, string, int, int64)) {}, Work: work, Log: log,
		UpdateDangling: func(context.Context) error {
			updated.Add(1)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := updated.Load(); n != 0 {
		t.Errorf("the conditions were written %d times without a change", n)
	}
	s := &flowcontrolv1.FlowSchema{}
	s.Name = "new"
	schemas := reg.Resource(flowcontrolv1.Resource("flowschemas"))
	if _, err := schemas.Writer.Insert(t.Context(), s, registry.Commit{}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the conditions to be written after the change", func() bool { return updated.Load() > 0 })
}

// TestSizes counts a custom resource. The bytes are known only with Options.BySize.
func TestSizes(t *testing.T) {
	custom := func(add func(group, resource string, n int, bytes int64)) { add("example.com", "widgets", 3, 100) }
	for bySize, want := range map[bool]flowcontrol.Size{true: {Objects: 3, Bytes: 100}, false: {Objects: 3}} {
		f := &fairness{Options: Options{Registry: newRegistry(t), Custom: custom, BySize: bySize}}
		if got, ok := f.size("example.com", "widgets"); ok {
			t.Errorf("%+v before they are counted", got)
		}
		f.count()
		if got, ok := f.size("example.com", "widgets"); !ok || got != want {
			t.Errorf("by size %v: %+v %v, want %+v", bySize, got, ok, want)
		}
	}
}
