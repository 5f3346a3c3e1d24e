package apiservice

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/apiregistration"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func newController(t *testing.T) *Controller {
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
	reg, err := registry.New(apiregistration.Kinds(), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	resources := directory.New()
	resources.PutBuiltIn(reg, nil)
	return &Controller{
		Registry: reg, Client: client.New(resources, write.New(reg, nil, nil, nil), "test"), Resources: resources,
		Ready:    func(context.Context) error { return nil },
		Priority: func(string) int { return 17000 }, Log: slog.New(slog.DiscardHandler),
	}
}

func version(group, name string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: name}
}

// put adds a resource called "widgets" to the directory.
func (c *Controller) put(gv schema.GroupVersion, source directory.Source) {
	c.Resources.Put(&directory.Resource{GVR: gv.WithResource("widgets"), Source: source})
}

// get returns an APIService, nil if there is none.
func (c *Controller) get(t *testing.T, gv schema.GroupVersion) *apiregistrationv1.APIService {
	t.Helper()
	found, err := c.Registry.Lookup(t.Context(), resource, "", name(gv))
	if err != nil {
		t.Fatal(err)
	}
	if found == nil {
		return nil
	}
	return found.(*apiregistrationv1.APIService)
}

func (c *Controller) waitFor(t *testing.T, gv schema.GroupVersion, there bool) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("the APIService %s: there=%v", name(gv), there), func() bool { return (c.get(t, gv) != nil) == there })
}

func (c *Controller) describe(t *testing.T, gv schema.GroupVersion) string {
	s := c.get(t, gv)
	if s == nil {
		return "none"
	}
	return fmt.Sprintf("%s %d %d", s.Labels[Label], s.Spec.GroupPriorityMinimum, s.Spec.VersionPriority)
}

func (c *Controller) waitUntil(t *testing.T, gv schema.GroupVersion, want string) {
	t.Helper()
	wait.Seen(t, fmt.Sprintf("the APIService %s to be %q", name(gv), want), func() (bool, string) {
		got := c.describe(t, gv)
		return got == want, got
	})
}

func (c *Controller) change(t *testing.T, gv schema.GroupVersion, change func(*apiregistrationv1.APIService)) {
	t.Helper()
	_, err := c.Client.Update(t.Context(), client.UpdateRequest{
		Ref: client.Ref{Resource: apiServices, Name: name(gv)},
		Change: func(obj registry.Object) error {
			change(obj.(*apiregistrationv1.APIService))
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStart(t *testing.T) {
	c := newController(t)
	apps, batch := version("apps", "v1"), version("batch", "v1beta1")
	c.put(apps, directory.BuiltIn)
	c.put(batch, directory.BuiltIn)
	c.put(version("example.com", "v1"), directory.Custom)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for gv, want := range map[schema.GroupVersion]string{
		apps: "onstart 17000 15", batch: "onstart 17000 9",
		version("example.com", "v1"): "none", version("apiregistration.k8s.io", "v1"): "none",
	} {
		if got := c.describe(t, gv); got != want {
			t.Errorf("%s: %s, want %s", gv, got, want)
		}
	}
}

// TestCustomResources adds and removes versions of groups, before and while the controller runs.
func TestCustomResources(t *testing.T) {
	c := newController(t)
	old, taken, first := version("old.example.com", "v1"), version("taken.example.com", "v1"), version("example.com", "v1")
	for gv, label := range map[schema.GroupVersion]string{old: Always, taken: ""} {
		s := &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: name(gv), Labels: map[string]string{Label: label}},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: 5, VersionPriority: 5, InsecureSkipTLSVerify: true,
				Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "other"},
			},
		}
		if _, err := c.Client.Create(t.Context(), client.CreateRequest{Resource: apiServices, Object: s}); err != nil {
			t.Fatal(err)
		}
	}
	apps := version("apps", "v1")
	c.put(apps, directory.BuiltIn)
	c.put(first, directory.Custom)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	c.waitFor(t, old, false) // its definition was deleted before
	c.waitFor(t, first, true)
	if got, want := c.describe(t, first), "true 1000 100"; got != want {
		t.Errorf("%s: %s, want %s", first, got, want)
	}
	// The controller resets a change. If a user removes the label, the user may delete the APIService later, and
	// then the controller creates a new one.
	c.change(t, first, func(s *apiregistrationv1.APIService) { s.Spec.GroupPriorityMinimum = 7 })
	c.waitUntil(t, first, "true 1000 100")
	c.change(t, first, func(s *apiregistrationv1.APIService) { s.Labels, s.Spec.GroupPriorityMinimum = nil, 7 })
	if _, err := c.Client.Delete(t.Context(), client.DeleteRequest{Ref: client.Ref{Resource: apiServices, Name: name(first)}}); err != nil {
		t.Fatal(err)
	}
	c.waitUntil(t, first, "true 1000 100")
	second := version("example.com", "v2")
	c.put(second, directory.Custom)
	c.put(taken, directory.Custom)
	c.waitFor(t, second, true)
	c.Resources.Remove(first.WithResource("widgets"), directory.Custom)
	c.waitFor(t, first, false)
	c.Resources.Remove(taken.WithResource("widgets"), directory.Custom)
	c.put(old, directory.Custom) // queued after the other versions: when this one is done, so are they
	c.waitFor(t, old, true)
	if got, want := c.describe(t, taken), " 5 5"; got != want {
		t.Errorf("the APIService of another server is %q, want %q", got, want)
	}
	if got := c.describe(t, apps); got != "none" {
		t.Errorf("Run created the APIService of a built-in version: %s", got)
	}
	cancel()
	wait.Receive(t, "Run to end", ended)
}
