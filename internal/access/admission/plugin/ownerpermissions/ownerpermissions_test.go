package ownerpermissions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// allows are the requests that are allowed, as verb group/resource/subresource namespace/name.
type allows []string

func (al allows) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	i := a.Info
	line := fmt.Sprintf("%s %s/%s/%s %s/%s", i.Verb, i.Group, i.Resource, i.Subresource, i.Namespace, i.Name)
	if slices.Contains(al, line) {
		return authz.Allow, "", nil
	}
	if a.User.Name == "unlucky" {
		return authz.NoOpinion, "", errors.New("broken")
	}
	return authz.NoOpinion, "no " + line, nil
}

func known(gvk schema.GroupVersionKind) []Resource {
	switch gvk {
	case corev1.SchemeGroupVersion.WithKind("ConfigMap"):
		return []Resource{{corev1.SchemeGroupVersion.WithResource("configmaps"), true}}
	case corev1.SchemeGroupVersion.WithKind("Node"):
		return []Resource{{corev1.SchemeGroupVersion.WithResource("nodes"), false}}
	}
	return nil
}

func owner(apiVersion, kind, name string, block *bool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), BlockOwnerDeletion: block,
	}
}

func dependent(refs ...metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.OwnerReferences = "n", "p", refs
	return p
}

// TestOwnersNeedPermissions has one case for each combination of a change and the permissions of the user.
func TestOwnersNeedPermissions(t *testing.T) {
	yes, no := true, false
	const (
		prefix   = `pods "p" is forbidden: `
		del      = "delete /pods/ n/p"
		cannot   = prefix + "cannot set an ownerRef on a resource you can't delete: no delete /pods/ n/p, <nil>"
		blocking = prefix + "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set " +
			"finalizers on: no update "
		mapping = prefix + "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
	)
	plain, blocks := owner("v1", "ConfigMap", "c", nil), owner("v1", "ConfigMap", "c", &yes)
	for name, c := range map[string]struct {
		obj, old *corev1.Pod
		allowed  allows
		want     string
	}{
		"create without":       {dependent(), nil, nil, ""},
		"create with owner":    {dependent(plain), nil, nil, ""},
		"create, not blocking": {dependent(owner("v1", "ConfigMap", "c", &no)), nil, nil, ""},
		"create, blocking":     {dependent(blocks), nil, nil, blocking + "/configmaps/finalizers n/c, <nil>"},
		"create, may finalize": {dependent(blocks), nil, allows{"update /configmaps/finalizers n/c"}, ""},
		"create, may all":      {dependent(blocks), nil, allows{"update */*/finalizers /*"}, ""},
		"cluster-scoped owner": {dependent(owner("v1", "Node", "d", &yes)), nil, allows{"update /nodes/finalizers /d"}, ""},
		"cluster-scoped, no": {
			dependent(owner("v1", "Node", "d", &yes)), nil, nil, blocking + "/nodes/finalizers /d, <nil>",
		},
		"unknown owner": {
			dependent(owner("v2", "ConfigMap", "c", &yes)), nil, nil,
			mapping + `v2 Kind ConfigMap: no matches for kind "ConfigMap" in version "v2"`,
		},
		"unparsable owner": {
			dependent(owner("a/b/c", "X", "c", &yes)), nil, nil,
			mapping + "a/b/c Kind X: unexpected GroupVersion string: a/b/c",
		},
		"update, nothing":    {dependent(blocks), dependent(blocks), nil, ""},
		"update, adds":       {dependent(plain), dependent(), nil, cannot},
		"update, may delete": {dependent(plain), dependent(), allows{del}, ""},
		"update, removes":    {dependent(), dependent(plain), nil, cannot},
		"update, starts to": {
			dependent(blocks), dependent(plain), allows{del}, blocking + "/configmaps/finalizers n/c, <nil>",
		},
		"update, stops to":      {dependent(plain), dependent(blocks), allows{del}, ""},
		"update, other renamed": {dependent(blocks, owner("v1", "Node", "d", nil)), dependent(blocks), allows{del}, ""},
	} {
		a := admissiontest.Creation(pods, c.obj)
		if c.old != nil {
			a = admissiontest.Change(pods, c.obj, c.old)
		}
		a.User = &request.User{Name: "u"}
		a.Requested.Resource = corev1.SchemeGroupVersion.WithResource("pods")
		err := Plugin(c.allowed, known).Validate(t.Context(), a)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestOwnersOfSomeWritesAreNotChecked(t *testing.T) {
	changed := func() *admission.Attributes {
		a := admissiontest.Change(pods, dependent(owner("v1", "ConfigMap", "c", nil)), dependent())
		a.User = &request.User{Name: "unlucky"}
		return a
	}
	check := Plugin(allows{}, known).Validate
	status, own, gone := changed(), changed(), changed()
	status.Subresource, own.User, gone.Operation, gone.Object = "status", nil, admission.Delete, nil
	for _, a := range []*admission.Attributes{status, own, gone} {
		if err := check(t.Context(), a); err != nil {
			t.Errorf("%v %v: %v", a.Operation, a.Subresource, err)
		}
	}
	const want = `pods "p" is forbidden: cannot set an ownerRef on a resource you can't delete: , broken`
	if err := check(t.Context(), changed()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
