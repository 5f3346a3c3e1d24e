package kubectlhistory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// candidate is an object as it was.
type candidate struct {
	resource resource
	object   *unstructured.Unstructured
}

func (c *candidate) uid() string { return string(c.object.GetUID()) }

// step is what is done with a candidate: it is created, unless skip says why not.
type step struct {
	candidate
	skip string
}

// planned returns what is done with objects, in the order in which they are created: by tier, and owners before what they own.
// live has the UIDs of now of owners that exist, by the UID of then. named says that the user named the objects one by one: then
// only those are skipped that their owner makes again.
//
// Example: a Pod of a ReplicaSet of a Deployment, a ConfigMap and the Deployment: the ConfigMap, the Deployment, the ReplicaSet
// (skipped, the Deployment makes it again), the Pod (skipped, the ReplicaSet makes it again).
func planned(objects []candidate, live map[string]string, named bool) []step {
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(tier(a.resource), tier(b.resource)), cmp.Compare(a.resource.String(), b.resource.String()),
			cmp.Compare(a.object.GetNamespace(), b.object.GetNamespace()), cmp.Compare(a.object.GetName(), b.object.GetName()),
		)
	})
	byUID := map[string]*candidate{}
	for i := range sorted {
		byUID[sorted[i].uid()] = &sorted[i]
	}
	var out []step
	visited := map[string]bool{}
	skipped := map[string]bool{}
	var visit func(c *candidate)
	visit = func(c *candidate) {
		if visited[c.uid()] {
			return // also in a circle of owners
		}
		visited[c.uid()] = true
		for _, owner := range c.object.GetOwnerReferences() {
			if o := byUID[string(owner.UID)]; o != nil {
				visit(o)
			}
		}
		s := step{candidate: *c}
		if owner := metav1.GetControllerOf(c.object); owner != nil && makes(owner, c.resource) {
			_, inSet := byUID[string(owner.UID)]
			if inSet && (!skipped[string(owner.UID)] || madeAgain(byUID, string(owner.UID))) || live[string(owner.UID)] != "" {
				s.skip = fmt.Sprintf("the %s %s makes it again", owner.Kind, owner.Name)
			}
		}
		if s.skip == "" && !named {
			s.skip = leftOut(c)
		}
		skipped[c.uid()] = s.skip != ""
		out = append(out, s)
	}
	for i := range sorted {
		visit(&sorted[i])
	}
	return out
}

// madeAgain reports whether an object of the set is itself made by its owner.
func madeAgain(byUID map[string]*candidate, uid string) bool {
	c := byUID[uid]
	owner := metav1.GetControllerOf(c.object)
	return owner != nil && makes(owner, c.resource)
}

// builtIn reports whether an API group is one of Kubernetes itself.
func builtIn(group string) bool {
	switch group {
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
		"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "lifecycle.k8s.io", "networking.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io":
		return true
	}
	return !strings.Contains(group, ".")
}

// tier returns the place of a resource in the order of creation.
func tier(r resource) int {
	const custom, rest = 7, 10
	if !builtIn(r.Group) {
		return custom
	}
	switch r.Kind {
	case "Namespace":
		return 0
	case "ServiceAccount":
		return 1
	case "Role", "ClusterRole":
		return 2
	case "RoleBinding", "ClusterRoleBinding":
		return 3
	case "ConfigMap", "Secret":
		return 4
	case "PersistentVolume":
		return 5
	case "PersistentVolumeClaim":
		return 6
	case "Service":
		return 8
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod":
		return 9
	}
	return rest
}

// makes reports whether the controller of an owner makes objects of a resource again when they are missing.
func makes(owner *metav1.OwnerReference, r resource) bool {
	group, _, found := strings.Cut(owner.APIVersion, "/")
	if !found {
		group = ""
	}
	if !builtIn(group) || !builtIn(r.Group) {
		return false
	}
	var kinds []string
	switch owner.Kind {
	case "Deployment":
		kinds = []string{"ReplicaSet"}
	case "ReplicaSet", "ReplicationController", "Job":
		kinds = []string{"Pod"}
	case "StatefulSet", "DaemonSet":
		kinds = []string{"Pod", "ControllerRevision"}
	case "CronJob":
		kinds = []string{"Job"}
	case "Service":
		kinds = []string{"EndpointSlice", "Endpoints"}
	case "Endpoints":
		kinds = []string{"EndpointSlice"}
	case "Pod":
		kinds = []string{"PersistentVolumeClaim", "ResourceClaim"}
	}
	return slices.Contains(kinds, r.Kind)
}

// leftOut returns why an object of a namespace or of a selector does not come back, "" if it does.
func leftOut(c *candidate) string {
	if reason := neverUndeleted(c.resource); reason != "" {
		return reason
	}
	o := c.object
	if !builtIn(c.resource.Group) {
		if o.GetDeletionTimestamp() != nil {
			return "it was being deleted"
		}
		return ""
	}
	kind := c.resource.Kind
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
	}
	if kind == "Secret" && o.Object["type"] == tokenSecret {
		return "its token was for a ServiceAccount that had another UID; make a new one"
	}
	if finished(kind, o) {
		return "it had finished, and would run again"
	}
	return ""
}

// neverUndeleted returns why no object of a resource comes back with a namespace, "" if they do.
func neverUndeleted(r resource) string {
	switch {
	case builtIn(r.Group) && r.Kind == "Event":
		return "Events report what happened, they do not come back"
	case builtIn(r.Group) && r.Kind == "Lease":
		return "who needs a Lease takes a new one"
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
