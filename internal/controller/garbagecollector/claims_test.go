package garbagecollector

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// claims is a graph with a ReplicaSet of this server and its Pod, and locations of an extension API server.
type claims struct {
	*graph
	own, pods, foreign, other *location
}

func newClaims() *claims {
	at := func(group, resource, kind string, remote bool) *location {
		gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
		return &location{
			resource: gvr, apiVersion: gvr.GroupVersion().String(), kind: kind, namespace: "a", remote: remote,
		}
	}
	c := &claims{
		graph: newGraph(), own: at("apps", "replicasets", "ReplicaSet", false), pods: at("", "pods", "Pod", false),
		foreign: at("evil.io", "foos", "Foo", true), other: at("evil.org", "bars", "Bar", true),
	}
	c.listed()
	return c
}

func (c *claims) owner(p *location, revision int64, l registry.Lifecycle) effects {
	l.UID = "owner"
	return c.set(p, client.Metadata{Namespace: "a", Name: "owner", Revision: revision, Lifecycle: l}, 1)
}

func (c *claims) dependent() {
	c.set(c.pods, client.Metadata{Namespace: "a", Name: "pod", Revision: 2, Lifecycle: registry.Lifecycle{
		UID: "pod", Owners: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", UID: "owner"}},
	}}, 1)
}

// TestExtensionsTouchOnlyTheirObjects: an extension API server claims that one of its objects has the UID of
// another object. This must not change the other object.
func TestExtensionsTouchOnlyTheirObjects(t *testing.T) {
	forged := registry.Lifecycle{
		Deleting: true, Finalizers: []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents},
	}
	for name, claim := range map[string]func(*claims) effects{
		"a deletion": func(c *claims) effects { return c.remove(c.foreign.resource.GroupResource(), "owner") },
		"a state":    func(c *claims) effects { return c.owner(c.foreign, 1<<62, forged) },
		"a list": func(c *claims) effects {
			c.owner(c.foreign, 5, forged)
			return c.sweep(c.foreign.resource.GroupResource(), 7)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaims()
			c.owner(c.own, 1, registry.Lifecycle{})
			c.dependent()
			if e := claim(c); len(e.check) > 0 || len(e.orphan) > 0 {
				t.Errorf("it has %v checked and %v orphaned", e.check, e.orphan)
			}
			o, ok := c.object("owner")
			if !ok || o.resource != c.own.resource || o.revision != 1 || o.deleting || o.dependents != 1 {
				t.Errorf("the owner is %+v, %t", o, ok)
			}
			if len(c.absent) > 0 {
				t.Errorf("%v are taken for absent", c.absent)
			}
		})
	}
}

// TestObjectsTakeTheirUIDFromExtensions: an object that appears after an extension API server has claimed its UID has its
// own state.
func TestObjectsTakeTheirUIDFromExtensions(t *testing.T) {
	c := newClaims()
	c.dependent()
	c.owner(c.foreign, 1<<62, registry.Lifecycle{
		Deleting: true, Finalizers: []string{metav1.FinalizerOrphanDependents},
	})
	if got := c.dependents("owner"); len(got) > 0 {
		t.Errorf("the extension may orphan %v", got)
	}
	if e := c.owner(c.other, 1<<62, registry.Lifecycle{}); len(e.check) > 0 {
		t.Errorf("a second extension has %v checked", e.check)
	}
	c.owner(c.own, 1, registry.Lifecycle{})
	if o, ok := c.object("owner"); !ok || o.resource != c.own.resource || o.revision != 1 || o.deleting || o.dependents != 1 {
		t.Errorf("the owner is %+v, %t", o, ok)
	}
	if got := c.dependents("owner"); len(got) != 1 {
		t.Errorf("the dependents are %v", got)
	}
	if len(c.absent) > 0 {
		t.Errorf("%v are taken for absent", c.absent)
	}
}

// TestAbsenceIsRead: an extension API server reports the deletion of one of its objects. The dependents of that
// owner are checked, but only a read shows that the owner does not exist.
func TestAbsenceIsRead(t *testing.T) {
	c := newClaims()
	c.owner(c.foreign, 1, registry.Lifecycle{})
	c.dependent()
	e := c.remove(c.foreign.resource.GroupResource(), "owner")
	if got := checked(e); len(got) != 1 || got[0] != types.UID("pod") {
		t.Errorf("%v are checked", got)
	}
	if len(c.absent) > 0 {
		t.Errorf("%v are taken for absent", c.absent)
	}
}
