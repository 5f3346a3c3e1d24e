package node

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/auth/authz"
)

// question is a request of a node.
type question struct {
	*Authorizer
	ctx  context.Context
	node string
	at   authz.Attributes
}

// verdict is what is said of a question: allowed, or not for a reason.
type verdict struct {
	allowed bool
	reason  string
	err     error
}

func (v verdict) answer() (authz.Decision, string, error) {
	if v.allowed {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, v.reason, v.err
}

var allow = verdict{allowed: true}

func no(reason string) verdict { return verdict{reason: reason} }

// judges are who decides about the resources that are not the same to all nodes.
var judges = map[schema.GroupResource]func(question) verdict{
	{Resource: "secrets"}:                func(q question) verdict { return q.read(secret) },
	{Resource: "configmaps"}:             func(q question) verdict { return q.read(configMap) },
	{Resource: "persistentvolumeclaims"}: question.claim,
	{Resource: "persistentvolumes"}:      func(q question) verdict { return q.get(volume) },
	{Resource: "serviceaccounts"}:        question.serviceAccount,
	{Resource: "nodes"}:                  question.nodes,
	{Resource: "pods"}:                   question.pods,

	{Group: "resource.k8s.io", Resource: "resourceclaims"}:             func(q question) verdict { return q.get(resourceClaim) },
	{Group: "resource.k8s.io", Resource: "resourceslices"}:             question.slices,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:           func(q question) verdict { return q.get(attachment) },
	{Group: "storage.k8s.io", Resource: "csinodes"}:                    question.csiNode,
	{Group: "coordination.k8s.io", Resource: "leases"}:                 question.lease,
	{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}: func(question) verdict { return no("") },
}

func (q question) verbIs(verbs ...string) bool {
	for _, v := range verbs {
		if q.at.Info.Verb == v {
			return true
		}
	}
	return false
}

// related allows what has to do with the node.
func (q question) related(k kind) verdict {
	i := q.at.Info
	if i.Name == "" {
		return no("No Object name found")
	}
	ok, err := q.Authorizer.related(q.ctx, q.node, object{k, i.Namespace, i.Name})
	if ok {
		return allow
	}
	return verdict{reason: fmt.Sprintf("no relationship found between node '%s' and this object", q.node), err: err}
}

// read allows to read objects one at a time.
func (q question) read(k kind) verdict {
	switch i := q.at.Info; {
	case !q.verbIs("get", "list", "watch"):
		return no("can only read resources of this type")
	case i.Subresource != "":
		return no("cannot read subresource")
	case i.Namespace == "":
		return no("can only read namespaced object of this type")
	}
	return q.related(k)
}

func (q question) get(k kind) verdict {
	switch {
	case !q.verbIs("get"):
		return no("can only get individual resources of this type")
	case q.at.Info.Subresource != "":
		return no("cannot get subresource")
	}
	return q.related(k)
}

func (q question) claim() verdict {
	if q.at.Info.Subresource != "status" {
		return q.get(claim)
	}
	if !q.verbIs("update", "patch") {
		return no("can only get/update/patch this type")
	}
	return q.related(claim)
}

func (q question) serviceAccount() verdict {
	i := q.at.Info
	switch {
	case i.Verb == "get" && i.Subresource == "":
		return q.read(serviceAccount)
	case i.Verb != "create" || i.Name == "":
		return no("can only create tokens for individual service accounts")
	case i.Subresource != "token":
		return no("can only create token subresource of serviceaccount")
	}
	return q.related(serviceAccount)
}

// lease allows the node's own lease. A create does not tell the name here: that
// is for admission to check.
func (q question) lease() verdict {
	switch i := q.at.Info; {
	case !q.verbIs("get", "create", "update", "patch", "delete"):
		return no("can only get, create, update, patch, or delete a node lease")
	case i.Namespace != leases:
		return no(fmt.Sprintf("can only access leases in the %q system namespace", leases))
	case i.Verb != "create" && i.Name != q.node:
		return no("can only access node lease with the same name as the requesting node")
	}
	return allow
}

func (q question) csiNode() verdict {
	switch i := q.at.Info; {
	case !q.verbIs("get", "create", "update", "patch", "delete"):
		return no("can only get, create, update, patch, or delete a CSINode")
	case i.Subresource != "":
		return no("cannot authorize CSINode subresources")
	case i.Verb != "create" && i.Name != q.node:
		return no("can only access CSINode with the same name as the requesting node")
	}
	return allow
}

func (q question) slices() verdict {
	switch {
	case q.at.Info.Subresource != "":
		return no("cannot authorize ResourceSlice subresources")
	case q.verbIs("create"):
		return allow
	case q.verbIs("get", "update", "patch", "delete"):
		return q.related(slice)
	case !q.verbIs("watch", "list", "deletecollection"):
		return no("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
	case q.at.Selectors.FieldEquals("spec.nodeName", q.node):
		return allow
	}
	return no("can only list/watch/deletecollection resourceslices with nodeName field selector")
}

// nodes allows a node to read itself. That it writes none but itself is for
// admission to check, which knows the object.
func (q question) nodes() verdict {
	i := q.at.Info
	switch {
	case i.Subresource == "" && q.verbIs("create", "update", "patch"),
		i.Subresource == "status" && q.verbIs("update", "patch"):
		return allow
	case i.Subresource != "" || !q.verbIs("get", "list", "watch"):
		return no("")
	case i.Name == "":
		return no(fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", q.node))
	case i.Name != q.node:
		return no(fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", q.node, i.Name))
	}
	return allow
}

// pods allows to read the node's pods. That it writes no others is for admission
// to check.
func (q question) pods() verdict {
	switch i := q.at.Info; i.Subresource {
	case "":
		switch {
		case q.verbIs("get"):
			return q.get(pod)
		case q.verbIs("create", "delete"):
			return allow
		case !q.verbIs("list", "watch"):
			return no("")
		case q.at.Selectors.FieldEquals("spec.nodeName", q.node):
			return allow
		case i.Name != "":
			return q.related(pod)
		}
		return no("can only list/watch pods with spec.nodeName field selector")
	case "status":
		if q.verbIs("update", "patch") {
			return allow
		}
	case "eviction":
		if q.verbIs("create") {
			return allow
		}
	}
	return no("")
}
