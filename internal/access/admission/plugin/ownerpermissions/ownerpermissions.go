// Package ownerpermissions restricts changes of ownerReferences (OwnerReferencesPermissionEnforcement). It is off by
// default. Dependents are deleted together with their owner, so a user who changes the owners of an object needs the
// permission to delete the object. A reference with blockOwnerDeletion delays the deletion of the owner, so a user who
// adds one needs the permission to update the finalizers of the owner.
package ownerpermissions

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

var pods = corev1.Resource("pods")

// Resource is a resource of a kind.
type Resource struct {
	schema.GroupVersionResource
	Namespaced bool
}

// Resources returns the resources that serve objects of a kind in a version; none if the kind is unknown.
type Resources func(schema.GroupVersionKind) []Resource

// Plugin returns the plug-in.
func Plugin(z authz.Authorizer, resources Resources) admission.Plugin {
	return admission.Plugin{Name: "OwnerReferencesPermissionEnforcement", Validate: plugin{z, resources}.validate}
}

type plugin struct {
	authorizer authz.Authorizer
	resources  Resources
}

// validate ignores writes of the status of pods, because these cannot change the owners.
func (p plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if a.Object == nil || a.Operation != admission.Create && a.Operation != admission.Update || a.User == nil ||
		a.Resource == pods && a.Subresource == "status" {
		return nil
	}
	refs := a.Object.GetOwnerReferences()
	var had []metav1.OwnerReference
	if a.Old != nil {
		had = a.Old.GetOwnerReferences()
	}
	if len(refs) == len(had) && (len(refs) == 0 || equality.Semantic.DeepEqual(refs, had)) {
		return nil
	}
	if a.Operation == admission.Update {
		if decision, reason, err := authz.Further(ctx, p.authorizer, deletion(a)); decision != authz.Allow {
			return a.Forbiddenf("cannot set an ownerRef on a resource you can't delete: %v, %w", reason, orNone(err))
		}
	}
	return p.checkBlocking(ctx, a, newlyBlocking(refs, had))
}

// deletion returns the attributes of a request that deletes the object.
func deletion(a *admission.Attributes) authz.Attributes {
	r := a.Requested.Resource
	return authz.Attributes{User: a.User, Info: &request.Info{
		Verb: "delete", Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: a.Subresource,
		Namespace: a.Namespace, Name: a.Name, AsksResource: true,
	}}
}

// finalizers returns the attributes of a request that changes the finalizers of the owner r/name.
func finalizers(u *request.User, r schema.GroupVersionResource, namespace, name string) authz.Attributes {
	return authz.Attributes{User: u, Info: &request.Info{
		Verb: "update", Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: "finalizers",
		Namespace: namespace, Name: name, AsksResource: true,
	}}
}

// newlyBlocking returns the references that block the deletion of the owner and did not do so before.
func newlyBlocking(refs, had []metav1.OwnerReference) []metav1.OwnerReference {
	blocked := map[string]bool{}
	for i := range had {
		if ptr.Deref(had[i].BlockOwnerDeletion, false) {
			blocked[string(had[i].UID)] = true
		}
	}
	var out []metav1.OwnerReference
	for i := range refs {
		if ptr.Deref(refs[i].BlockOwnerDeletion, false) && !blocked[string(refs[i].UID)] {
			out = append(out, refs[i])
		}
	}
	return out
}

// checkBlocking checks whether the user may change the finalizers of all these owners.
func (p plugin) checkBlocking(ctx context.Context, a *admission.Attributes, refs []metav1.OwnerReference) error {
	if len(refs) == 0 {
		return nil
	}
	// A user who may change the finalizers of everything needs no check of single kinds.
	everything := schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}
	if d, _, _ := authz.Further(ctx, p.authorizer, finalizers(a.User, everything, "", "*")); d == authz.Allow {
		return nil
	}
	for i := range refs {
		owners, err := p.owners(&refs[i])
		if err != nil {
			return a.Forbiddenf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping "+
				"for APIVersion %s Kind %s: %w", refs[i].APIVersion, refs[i].Kind, err)
		}
		for _, owner := range owners {
			namespace := ""
			if owner.Namespaced {
				namespace = a.Namespace // an owner is in the namespace of its dependents
			}
			attributes := finalizers(a.User, owner.GroupVersionResource, namespace, refs[i].Name)
			if decision, reason, err := authz.Further(ctx, p.authorizer, attributes); decision != authz.Allow {
				return a.Forbiddenf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you "+
					"can't set finalizers on: %v, %w", reason, orNone(err))
			}
		}
	}
	return nil
}

// owners returns the resources that the owner may belong to.
func (p plugin) owners(ref *metav1.OwnerReference) ([]Resource, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	found := p.resources(gv.WithKind(ref.Kind))
	if len(found) == 0 {
		return nil, &meta.NoKindMatchError{
			GroupKind: schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, SearchedVersions: []string{gv.Version},
		}
	}
	return found, nil
}

// orNone returns err, or the text that kube-apiserver prints for a nil error.
func orNone(err error) error {
	if err == nil {
		return noError{}
	}
	return err
}

type noError struct{}

func (noError) Error() string { return "<nil>" }
