package node

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
)

// nodeRequest is a request of a node.
type nodeRequest struct {
	*Authorizer
	ctx        context.Context
	node       string
	attributes authz.Attributes
}

// decision is the result of a rule: the request is allowed, or it is not for a reason.
type decision struct {
	allowed bool
	reason  string
	err     error
}

func (v decision) result() (authz.Decision, string, error) {
	if v.allowed {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, v.reason, v.err
}

var allowed = decision{allowed: true}

func noOpinion(reason string) decision { return decision{reason: reason} }

// podCertificateRequests is a resource of the feature gate PodCertificateRequest.
var podCertificateRequests = schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}

// resourceRules has a function for each resource where the decision depends on the node. The
// other resources are decided by the rules of the ClusterRole system:node alone.
var resourceRules = map[schema.GroupResource]func(nodeRequest) decision{
	{Resource: "secrets"}:                func(q nodeRequest) decision { return q.allowRead(secret) },
	{Resource: "configmaps"}:             func(q nodeRequest) decision { return q.allowRead(configMap) },
	{Resource: "persistentvolumeclaims"}: nodeRequest.persistentVolumeClaims,
	{Resource: "persistentvolumes"}:      func(q nodeRequest) decision { return q.allowGet(volume) },
	{Resource: "serviceaccounts"}:        nodeRequest.serviceAccounts,
	{Resource: "nodes"}:                  nodeRequest.nodes,
	{Resource: "pods"}:                   nodeRequest.pods,

	{Group: "resource.k8s.io",
		Resource: "resourceclaims"}: func(q nodeRequest) decision { return q.allowGet(resourceClaim) },
	{Group: "resource.k8s.io", Resource: "resourceslices"}: nodeRequest.resourceSlices,
	{Group: "storage.k8s.io",
		Resource: "volumeattachments"}: func(q nodeRequest) decision { return q.allowGet(attachment) },
	{Group: "storage.k8s.io", Resource: "csinodes"}:    nodeRequest.csiNodes,
	{Group: "coordination.k8s.io", Resource: "leases"}: nodeRequest.leases,
	podCertificateRequests:                             nodeRequest.podCertificateRequests,
}

func (q nodeRequest) verbIs(verbs ...string) bool {
	return slices.Contains(verbs, q.attributes.Info.Verb)
}

// allowRelated allows a request for an object that is related to the node.
func (q nodeRequest) allowRelated(k kind) decision {
	i := q.attributes.Info
	if i.Name == "" {
		return noOpinion("No Object name found")
	}
	ok, err := q.Authorizer.related(q.ctx, q.node, object{k, i.Namespace, i.Name})
	if ok {
		return allowed
	}
	return decision{reason: fmt.Sprintf("no relationship found between node '%s' and this object", q.node), err: err}
}

// allowRead allows get, list and watch of a single namespaced object that is related to the
// node.
func (q nodeRequest) allowRead(k kind) decision {
	switch i := q.attributes.Info; {
	case !q.verbIs("get", "list", "watch"):
		return noOpinion("can only read resources of this type")
	case i.Subresource != "":
		return noOpinion("cannot read subresource")
	case i.Namespace == "":
		return noOpinion("can only read namespaced object of this type")
	}
	return q.allowRelated(k)
}

func (q nodeRequest) allowGet(k kind) decision {
	switch {
	case !q.verbIs("get"):
		return noOpinion("can only get individual resources of this type")
	case q.attributes.Info.Subresource != "":
		return noOpinion("cannot get subresource")
	}
	return q.allowRelated(k)
}

func (q nodeRequest) persistentVolumeClaims() decision {
	if q.attributes.Info.Subresource != "status" {
		return q.allowGet(claim)
	}
	if !q.verbIs("update", "patch") {
		return noOpinion("can only get/update/patch this type")
	}
	return q.allowRelated(claim)
}

func (q nodeRequest) serviceAccounts() decision {
	i := q.attributes.Info
	switch {
	case i.Verb == "get" && i.Subresource == "":
		return q.allowRead(serviceAccount)
	case i.Verb != "create" || i.Name == "":
		return noOpinion("can only create tokens for individual service accounts")
	case i.Subresource != "token":
		return noOpinion("can only create token subresource of serviceaccount")
	}
	return q.allowRelated(serviceAccount)
}

// leases allows the node's own lease. The name in a create is not known yet; admission checks it.
func (q nodeRequest) leases() decision {
	switch i := q.attributes.Info; {
	case !q.verbIs("get", "create", "update", "patch", "delete"):
		return noOpinion("can only get, create, update, patch, or delete a node lease")
	case i.Namespace != leaseNamespace:
		return noOpinion(fmt.Sprintf("can only access leases in the %q system namespace", leaseNamespace))
	case i.Verb != "create" && i.Name != q.node:
		return noOpinion("can only access node lease with the same name as the requesting node")
	}
	return allowed
}

func (q nodeRequest) csiNodes() decision {
	switch i := q.attributes.Info; {
	case !q.verbIs("get", "create", "update", "patch", "delete"):
		return noOpinion("can only get, create, update, patch, or delete a CSINode")
	case i.Subresource != "":
		return noOpinion("cannot authorize CSINode subresources")
	case i.Verb != "create" && i.Name != q.node:
		return noOpinion("can only access CSINode with the same name as the requesting node")
	}
	return allowed
}

func (q nodeRequest) resourceSlices() decision {
	switch {
	case q.attributes.Info.Subresource != "":
		return noOpinion("cannot authorize ResourceSlice subresources")
	case q.verbIs("create"):
		return allowed
	case q.verbIs("get", "update", "patch", "delete"):
		return q.allowRelated(slice)
	case !q.verbIs("watch", "list", "deletecollection"):
		return noOpinion("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, " +
			"update, patch, delete, deletecollection")
	case q.attributes.Selectors.FieldEquals("spec.nodeName", q.node):
		return allowed
	}
	return noOpinion("can only list/watch/deletecollection resourceslices with nodeName field selector")
}

// podCertificateRequests allows a node to create requests, which the admission plug-in NodeRestriction checks, and to
// read those for the node. Without the feature gate the resource does not exist.
func (q nodeRequest) podCertificateRequests() decision {
	switch {
	case q.o.Registry.Resource(podCertificateRequests) == nil:
		return noOpinion("")
	case q.attributes.Info.Subresource != "":
		return noOpinion("nodes may not access the status subresource of PodCertificateRequests")
	case q.verbIs("create"):
		return allowed
	case q.verbIs("get"):
		return q.allowRelated(certificateRequest)
	case !q.verbIs("list", "watch"):
		return noOpinion("nodes may not " + q.attributes.Info.Verb + " podcertificaterequests")
	case q.attributes.Selectors.FieldEquals("spec.nodeName", q.node):
		return allowed
	}
	return noOpinion("can only list/watch podcertificaterequests with nodeName field selector")
}

// nodes allows a node to read itself, and to write Nodes. The admission plug-in
// NodeRestriction checks that a node writes only itself.
func (q nodeRequest) nodes() decision {
	i := q.attributes.Info
	switch {
	case i.Subresource == "" && q.verbIs("create", "update", "patch"),
		i.Subresource == "status" && q.verbIs("update", "patch"):
		return allowed
	case i.Subresource != "" || !q.verbIs("get", "list", "watch"):
		return noOpinion("")
	case i.Name == "":
		return noOpinion(fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", q.node))
	case i.Name != q.node:
		return noOpinion(fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", q.node, i.Name))
	}
	return allowed
}

// pods allows a node to read its pods, and to write pods. The admission plug-in
// NodeRestriction checks that a node writes only its own pods.
func (q nodeRequest) pods() decision {
	switch i := q.attributes.Info; i.Subresource {
	case "":
		switch {
		case q.verbIs("get"):
			return q.allowGet(pod)
		case q.verbIs("create", "delete"):
			return allowed
		case !q.verbIs("list", "watch"):
			return noOpinion("")
		case q.attributes.Selectors.FieldEquals("spec.nodeName", q.node):
			return allowed
		case i.Name != "":
			return q.allowRelated(pod)
		}
		return noOpinion("can only list/watch pods with spec.nodeName field selector")
	case "status":
		if q.verbIs("update", "patch") {
			return allowed
		}
	case "eviction":
		if q.verbIs("create") {
			return allowed
		}
	}
	return noOpinion("")
}
