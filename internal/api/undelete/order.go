package undelete

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// resource is a resource of the server in one version.
type resource struct {
	discovery.Resource
	// builtIn means that the kind is one of Kubernetes itself, for which there are rules.
	builtIn bool
	served  *registry.Served
	failed  int // the number of objects whose conversion failed
}

// is reports whether the resource has the objects of a kind of Kubernetes.
func (r *resource) is(group, kind string) bool {
	return r.builtIn && r.Group == group && r.Kind == kind
}

func (r *resource) isNamespace() bool { return r.is("", "Namespace") }

func (r *resource) isDefinition() bool {
	return r.is("apiextensions.k8s.io", "CustomResourceDefinition")
}

// candidate is an object that may come back, with only the fields that order needs. The whole object is read again
// when its step is written, because all objects together may be too large for the memory.
type candidate struct {
	*resource
	namespace, name string
	uid             types.UID
	owners          []metav1.OwnerReference
	at              int64  // the revision of the object that comes back
	out             string // why it does not come back with others, "" if it does
	exists          bool
	claim           *claimRef // of a PersistentVolume
	contentAsOf     string
}

// isOwner reports whether a reference in an object of a namespace means the candidate.
func (c *candidate) isOwner(namespace string, owner *metav1.OwnerReference) bool {
	group, _, found := strings.Cut(owner.APIVersion, "/")
	if !found {
		group = ""
	}
	return c.uid == owner.UID && c.Group == group && c.Kind == owner.Kind && c.name == owner.Name &&
		(c.namespace == "" || c.namespace == namespace)
}

// step has a candidate and what happens to it: it is created, unless skip has a reason against it.
type step struct {
	*candidate
	skip string
}

// order puts candidates in order.
type order struct {
	byUID map[types.UID]*candidate
	// live has the current UIDs of owners that exist.
	live map[ownerKey]types.UID
	// named means that the user named the objects one by one. Then an object is skipped only if it exists, or if
	// its owner makes it again.
	named bool
	// builtIn reports whether a group is one of Kubernetes itself.
	builtIn func(group string) bool

	steps   []step
	skipped map[*candidate]string // the visited candidates, with the reason not to create them
}

// run returns what is done with objects in the order in which they are created: by tier, and owners before what they own.
//
// Example: a Pod of a ReplicaSet of a Deployment, a ConfigMap and the Deployment: the ConfigMap, the Deployment, the ReplicaSet
// (skipped, the Deployment makes it again), the Pod (skipped, the ReplicaSet makes it again).
func (o *order) run(candidates []*candidate) []step {
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, func(a, b *candidate) int {
		return cmp.Or(
			cmp.Compare(tier(a.resource), tier(b.resource)), cmp.Compare(a.GroupResource().String(), b.GroupResource().String()),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
		)
	})
	o.byUID, o.skipped = map[types.UID]*candidate{}, map[*candidate]string{}
	for _, c := range sorted {
		o.byUID[c.uid] = c
	}
	for _, c := range sorted {
		o.visit(c)
	}
	return o.steps
}

// visit adds the step of a candidate after the steps of its owners. It does nothing if the candidate was visited
// before. So it also ends if owners own each other in a circle.
func (o *order) visit(c *candidate) {
	if _, visited := o.skipped[c]; visited {
		return
	}
	o.skipped[c] = ""
	for _, owner := range c.owners {
		if above := o.byUID[owner.UID]; above != nil {
			o.visit(above)
		}
	}
	skip := o.reason(c)
	o.skipped[c] = skip
	o.steps = append(o.steps, step{c, skip})
}

// reason returns why a candidate is not created, "" if it is. Its owners were visited.
func (o *order) reason(c *candidate) string {
	if owner := o.maker(c); owner != nil {
		above := o.byUID[owner.UID]
		comesBack := above != nil && above.isOwner(c.namespace, owner) && (o.skipped[above] == "" || o.maker(above) != nil)
		if comesBack || o.live[keyOf(c.namespace, owner)] != "" {
			return fmt.Sprintf("the %s %s makes it again", owner.Kind, owner.Name)
		}
	}
	switch {
	case c.exists:
		return Exists
	case c.isRequest():
		return ofSomebodyElse
	case o.named:
		return ""
	}
	return c.out
}

// maker returns the controlling owner of a candidate if the controller of that owner creates such objects again, such
// as the ReplicaSet of a Pod; otherwise nil.
func (o *order) maker(c *candidate) *metav1.OwnerReference {
	for i := range c.owners {
		owner := &c.owners[i]
		if owner.Controller == nil || !*owner.Controller {
			continue
		}
		group, _, found := strings.Cut(owner.APIVersion, "/")
		if !found {
			group = ""
		}
		if c.builtIn && o.builtIn(group) && slices.Contains(made[owner.Kind], c.Kind) {
			return owner
		}
	}
	return nil
}

// made has the kinds whose objects the controller of an owner makes again when they are missing.
var made = map[string][]string{
	"Deployment":            {"ReplicaSet"},
	"ReplicaSet":            {"Pod"},
	"ReplicationController": {"Pod"},
	"Job":                   {"Pod"},
	"StatefulSet":           {"Pod", "ControllerRevision"},
	"DaemonSet":             {"Pod", "ControllerRevision"},
	"CronJob":               {"Job"},
	"Service":               {"EndpointSlice", "Endpoints"},
	"Endpoints":             {"EndpointSlice"},
	"Pod":                   {"PersistentVolumeClaim", "ResourceClaim"},
}

// tiers are the kinds of Kubernetes in the order in which they are created. Custom resources are the empty tier; other kinds come last.
var tiers = [][]string{
	{"CustomResourceDefinition"},
	{"Namespace"},
	{"ServiceAccount"},
	{"Role", "ClusterRole"},
	{"RoleBinding", "ClusterRoleBinding"},
	{"ConfigMap", "Secret"},
	{"PersistentVolume"},
	{"PersistentVolumeClaim"},
	{},
	{"Service"},
	{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod"},
}

// tier returns the place of a resource in the order of creation.
func tier(r *resource) int {
	at := slices.IndexFunc(tiers, func(kinds []string) bool {
		return r.builtIn && slices.Contains(kinds, r.Kind) || !r.builtIn && len(kinds) == 0
	})
	if at < 0 {
		return len(tiers)
	}
	return at
}

// tokenSecret is the type of a Secret with a token of a ServiceAccount.
const tokenSecret = "kubernetes.io/service-account-token"

// ofSomebodyElse is why a request for a certificate does not come back: the server records who creates it, and signers decide by that.
const ofSomebodyElse = "it was the request of somebody for a certificate, and would be the request of who brings it back"

// isRequest reports whether the objects of the resource are requests for certificates. Signers decide by who created
// them, so nobody else may create them again.
func (r *resource) isRequest() bool {
	return r.is("certificates.k8s.io", "CertificateSigningRequest") || r.is("certificates.k8s.io", "PodCertificateRequest")
}

// never returns why no object of a resource comes back with others, "" if they do.
func never(r *resource) string {
	switch {
	case r.builtIn && r.Kind == "Event":
		return "Events report what happened, they do not come back"
	case r.builtIn && r.Kind == "Lease":
		return "who needs a Lease takes a new one"
	case r.isRequest():
		return ofSomebodyElse
	}
	return ""
}

// leftOut returns why an object does not come back with a namespace or a selection, "" if it does.
func leftOut(r *resource, o *unstructured.Unstructured) string {
	if reason := never(r); reason != "" {
		return reason
	}
	kind := ""
	if r.builtIn {
		kind = r.Kind
	}
	switch {
	case o.GetDeletionTimestamp() != nil && kind != "Namespace":
		return "it was being deleted"
	case kind == "ConfigMap" && o.GetName() == "kube-root-ca.crt", kind == "ServiceAccount" && o.GetName() == "default":
		return "a controller makes it in each namespace"
	case kind == "EndpointSlice" && strings.HasSuffix(o.GetLabels()["endpointslice.kubernetes.io/managed-by"], ".k8s.io"),
		kind == "Endpoints" && o.GetAnnotations()["endpoints.kubernetes.io/last-change-trigger-time"] != "",
		kind == "Endpoints" && o.GetLabels()["endpoints.kubernetes.io/managed-by"] != "":
		return "a controller makes it for a Service"
	case kind == "Pod" && o.GetAnnotations()["kubernetes.io/config.mirror"] != "":
		return "the kubelet makes it from a file"
	case kind == "Secret" && o.Object["type"] == tokenSecret:
		return "its token was for a ServiceAccount that had another UID; make a new one"
	case finished(kind, o):
		return "it had finished, and would run again"
	}
	return ""
}

// finished reports whether a Pod or Job had ended.
func finished(kind string, o *unstructured.Unstructured) bool {
	switch kind {
	case "Pod":
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		return phase == "Succeeded" || phase == "Failed"
	case "Job":
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			condition, _ := c.(map[string]any)
			return (condition["type"] == "Complete" || condition["type"] == "Failed") && condition["status"] == "True"
		})
	}
	return false
}
