package node

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
)

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

func (d decision) result() (authz.Decision, string, error) {
	if d.allowed {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, d.reason, d.err
}

var allowed = decision{allowed: true}

func noOpinion(reason string) decision { return decision{reason: reason} }

// podCertificateRequests is a resource of the feature gate PodCertificateRequest.
var podCertificateRequests = schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}

// resourceRules has a function for each resource for which the decision depends on the node. For other resources
// only the rules of the ClusterRole system:node count.
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

func (r nodeRequest) verbIs(verbs ...string) bool {
	return slices.Contains(verbs, r.attributes.Info.Verb)
}

// allowRelated allows a request for an object that is related to the node.
func (r nodeRequest) allowRelated(k kind) decision {
	i := r.attributes.Info
	if i.Name == "" {
		return noOpinion("No Object name found")
	}
	ok, err := r.Authorizer.related(r.ctx, r.node, object{k, i.Namespace, i.Name})
	if ok {
		return allowed
	}
	return decision{reason: fmt.Sprintf("no relationship found between node '%s' and this object", r.node), err: err}
}

// allowRead allows get, list and watch of a single namespaced object that is related to the
// node.
func (r nodeRequest) allowRead(k kind) decision {
	switch i := r.attributes.Info; {
	case !r.verbIs("get", "list", "watch"):
		return noOpinion("can only read resources of this type")
	case i.Subresource != "":
		return noOpinion("cannot read subresource")
	case i.Namespace == "":
		return noOpinion("can only read namespaced object of this type")
	}
	return r.allowRelated(k)
}

func (r nodeRequest) allowGet(k kind) decision {
	switch {
	case !r.verbIs("get"):
		return noOpinion("can only get individual resources of this type")
	case r.attributes.Info.Subresource != "":
		return noOpinion("cannot get subresource")
	}
	return r.allowRelated(k)
}

func (r nodeRequest) persistentVolumeClaims() decision {
	if r.attributes.Info.Subresource != "status" {
		return r.allowGet(claim)
	}
	if !r.verbIs("update", "patch") {
		return noOpinion("can only get/update/patch this type")
	}
	return r.allowRelated(claim)
}

func (r nodeRequest) serviceAccounts() decision {
	i := r.attributes.Info
	switch {
	case i.Verb == "get" && i.Subresource == "":
		return r.allowRead(serviceAccount)
	case i.Verb != "create" || i.Name == "":
		return noOpinion("can only create tokens for individual service accounts")
	case i.Subresource != "token":
		return noOpinion("can only create token subresource of serviceaccount")
	}
	return r.allowRelated(serviceAccount)
}

// leases allows the node's own lease. The name in a create is not known yet; admission checks it.
func (r nodeRequest) leases() decision {
	switch i := r.attributes.Info; {
	case !r.verbIs("get", "create", "update", "patch", "delete"):
		return noOpinion("can only get, create, update, patch, or delete a node lease")
	case i.Namespace != leaseNamespace:
		return noOpinion(fmt.Sprintf("can only access leases in the %q system namespace", leaseNamespace))
	case i.Verb != "create" && i.Name != r.node:
		return noOpinion("can only access node lease with the same name as the requesting node")
	}
	return allowed
}

func (r nodeRequest) csiNodes() decision {
	switch i := r.attributes.Info; {
	case !r.verbIs("get", "create", "update", "patch", "delete"):
		return noOpinion("can only get, create, update, patch, or delete a CSINode")
	case i.Subresource != "":
		return noOpinion("cannot authorize CSINode subresources")
	case i.Verb != "create" && i.Name != r.node:
		return noOpinion("can only access CSINode with the same name as the requesting node")
	}
	return allowed
}

func (r nodeRequest) resourceSlices() decision {
	switch {
	case r.attributes.Info.Subresource != "":
		return noOpinion("cannot authorize ResourceSlice subresources")
	case r.verbIs("create"):
		return allowed
	case r.verbIs("get", "update", "patch", "delete"):
		return r.allowRelated(slice)
	case !r.verbIs("watch", "list", "deletecollection"):
		return noOpinion("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, " +
			"update, patch, delete, deletecollection")
	case r.attributes.Selectors.FieldEquals("spec.nodeName", r.node):
		return allowed
	}
	return noOpinion("can only list/watch/deletecollection resourceslices with nodeName field selector")
}

// podCertificateRequests allows a node to create requests, which the admission plug-in NodeRestriction checks, and to
// read those for the node. Without the feature gate the resource does not exist.
func (r nodeRequest) podCertificateRequests() decision {
	switch {
	case r.o.Registry.Resource(podCertificateRequests) == nil:
		return noOpinion("")
	case r.attributes.Info.Subresource != "":
		return noOpinion("nodes may not access the status subresource of PodCertificateRequests")
	case r.verbIs("create"):
		return allowed
	case r.verbIs("get"):
		return r.allowRelated(certificateRequest)
	case !r.verbIs("list", "watch"):
		return noOpinion("nodes may not " + r.attributes.Info.Verb + " podcertificaterequests")
	case r.attributes.Selectors.FieldEquals("spec.nodeName", r.node):
		return allowed
	}
	return noOpinion("can only list/watch podcertificaterequests with nodeName field selector")
}

// nodes allows a node to read itself, and to write Nodes. The admission plug-in
// NodeRestriction checks that a node writes only itself.
func (r nodeRequest) nodes() decision {
	i := r.attributes.Info
	switch {
	case i.Subresource == "" && r.verbIs("create", "update", "patch"),
		i.Subresource == "status" && r.verbIs("update", "patch"):
		return allowed
	case i.Subresource != "" || !r.verbIs("get", "list", "watch"):
		return noOpinion("")
	case i.Name == "":
		return noOpinion(fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", r.node))
	case i.Name != r.node:
		return noOpinion(fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", r.node, i.Name))
	}
	return allowed
}

// pods allows a node to read its pods, and to write pods. The admission plug-in
// NodeRestriction checks that a node writes only its own pods.
func (r nodeRequest) pods() decision {
	switch i := r.attributes.Info; i.Subresource {
	case "":
		switch {
		case r.verbIs("get"):
			return r.allowGet(pod)
		case r.verbIs("create", "delete"):
			return allowed
		case !r.verbIs("list", "watch"):
			return noOpinion("")
		case r.attributes.Selectors.FieldEquals("spec.nodeName", r.node):
			return allowed
		case i.Name != "":
			return r.allowRelated(pod)
		}
		return noOpinion("can only list/watch pods with spec.nodeName field selector")
	case "status":
		if r.verbIs("update", "patch") {
			return allowed
		}
	case "eviction":
		if r.verbIs("create") {
			return allowed
		}
	}
	return noOpinion("")
}
