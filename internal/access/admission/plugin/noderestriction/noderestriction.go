// Package noderestriction limits what kubelets may write (NodeRestriction). It is off by default. The node authorizer
// decides which resources a kubelet may write; this plug-in checks the objects: a kubelet may only change its own Node,
// Lease, CSINode and ResourceSlices, may only create mirror pods on its node, may only evict, delete and report about
// pods on its node, and gets tokens and certificates only for these pods.
package noderestriction

import (
	"context"
	"encoding/json"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/certificates"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/access/auth/node"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	pods           = corev1.Resource("pods")
	nodes          = corev1.Resource("nodes")
	claims         = corev1.Resource("persistentvolumeclaims")
	volumes        = corev1.Resource("persistentvolumes")
	accounts       = corev1.Resource("serviceaccounts")
	leases         = coordinationv1.Resource("leases")
	csiNodes       = storagev1.Resource("csinodes")
	csiDrivers     = storagev1.Resource("csidrivers")
	resourceSlices = resourcev1.Resource("resourceslices")
	requests       = certificatesv1.Resource("certificatesigningrequests")
	podRequests    = certificatesv1.Resource("podcertificaterequests")
)

// Options are the dependencies of the plug-in.
type Options struct {
	Objects admission.Objects
	// Authorizer decides whether a node may request tokens for an audience, or certificates of a signer, that its pod does not
	// use.
	Authorizer authz.Authorizer
	// VolumeHealth lets nodes write the status of their CSINode (the gate CSIVolumeHealth).
	VolumeHealth bool
}

// Plugin returns the plug-in.
func Plugin(o Options) admission.Plugin {
	return admission.Plugin{Name: "NodeRestriction", Mutate: (&plugin{o.Objects, o.Authorizer, o.VolumeHealth}).check}
}

type plugin struct {
	objects      admission.Objects
	authorizer   authz.Authorizer
	volumeHealth bool
}

// write is a write of a kubelet.
type write struct {
	*admission.Attributes
	node string
}

func (p *plugin) check(ctx context.Context, a *admission.Attributes) error {
	if a.User == nil || a.Operation == admission.Connect {
		return nil
	}
	name, is := node.NodeName(a.User)
	if !is {
		return nil
	}
	w := &write{a, name}
	if name == "" {
		return w.Forbiddenf("could not determine node from user %q", a.User.Name)
	}
	switch a.Resource {
	case pods:
		return p.checkPod(ctx, w)
	case nodes:
		return checkNode(w)
	case claims:
		return checkClaim(w)
	case accounts:
		return p.checkToken(ctx, w)
	case leases:
		return checkLease(w)
	case csiNodes:
		if objectName(a) != name {
			return w.Forbiddenf("can only access CSINode with the same name as the requesting node")
		}
		if w.Subresource == "status" {
			return p.checkCSIStatus(w)
		}
	case resourceSlices:
		return checkSlice(w)
	case requests:
		return checkRequest(w)
	case podRequests:
		return p.checkPodRequest(ctx, w)
	}
	return nil
}

// checkCSIStatus lets a kubelet write the status of its CSINode. The same write must not change the spec.
func (p *plugin) checkCSIStatus(w *write) error {
	if !p.volumeHealth {
		return w.Forbiddenf("CSIVolumeHealth feature gate is disabled")
	}
	if w.Operation != admission.Update {
		return w.Forbiddenf("unexpected operation %q", w.Operation)
	}
	if !equality.Semantic.DeepEqual(w.Old.(*storagev1.CSINode).Spec, w.Object.(*storagev1.CSINode).Spec) {
		return w.Forbiddenf("node %q is not allowed to modify CSINode spec via status", w.node)
	}
	return nil
}

// permits reports whether the user of a write may use verb on resource with the name of a service account.
// resource is not a resource of the API here: it is an audience or a signer. The error only matters if the result
// is false.
func (p *plugin) permits(ctx context.Context, w *write, verb, resource, account string) (bool, error) {
	decision, _, err := authz.Further(ctx, p.authorizer, authz.Attributes{User: w.User, Info: &request.Info{
		Verb: verb, Group: w.Requested.Resource.Group, Version: w.Requested.Resource.Version, Resource: resource,
		AsksResource: true, Namespace: w.Namespace, Name: account,
	}})
	return decision == authz.Allow, err
}

// objectName returns the name of the object of a write. It comes from the new object in a create, from the old
// object in the deletion of a collection, and else from the request.
func objectName(a *admission.Attributes) string {
	switch {
	case a.Operation == admission.Create:
		return a.Object.GetName()
	case a.Options.Collection:
		return a.Old.GetName()
	}
	return a.Name
}

// lookup returns an object, or the error for the client. The argument what is the name of the resource in the
// error.
func (p *plugin) lookup(
	ctx context.Context, w *write, r schema.GroupResource, namespace, name, what string,
) (registry.Object, error) {
	obj, err := p.find(ctx, r, namespace, name, what)
	if err != nil && !kerrors.IsNotFound(err) {
		return nil, w.Forbidden(err)
	}
	return obj, err
}

func checkLease(w *write) error {
	if w.Namespace != corev1.NamespaceNodeLease {
		return w.Forbiddenf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if objectName(w.Attributes) != w.node {
		return w.Forbiddenf("can only access node lease with the same name as the requesting node")
	}
	return nil
}

// checkSlice checks creates and deletions. Updates of the slices of other nodes are refused by the node
// authorizer.
func checkSlice(w *write) error {
	obj, verb := w.Object, "create"
	switch w.Operation {
	case admission.Update:
		return nil
	case admission.Delete:
		obj, verb = w.Old, "delete"
	}
	if slice := obj.(*resourcev1.ResourceSlice); slice.Spec.NodeName == nil || *slice.Spec.NodeName != w.node {
		return w.Forbiddenf("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// checkRequest checks that a kubelet requests certificates only for its own node.
func checkRequest(w *write) error {
	if w.Operation != admission.Create {
		return nil
	}
	csr := w.Object.(*certificatesv1.CertificateSigningRequest)
	switch csr.Spec.SignerName {
	case certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName:
	default:
		return nil
	}
	parsed, err := certificates.ParseRequest(csr.Spec.Request)
	if err != nil {
		return w.Forbiddenf("unable to parse csr: %w", err)
	}
	if want := "system:node:" + w.node; parsed.Subject.CommonName != want {
		return w.Forbiddenf("can only create a node CSR with CN=%s", want)
	}
	return nil
}

// checkClaim lets a kubelet report that it resized the volume of a claim.
func checkClaim(w *write) error {
	if w.Subresource != "status" {
		return w.Forbiddenf("may only update PVC status")
	}
	if w.Operation != admission.Update {
		return w.Forbiddenf("unexpected operation %q", w.Operation)
	}
	claim, old := w.Object.(*corev1.PersistentVolumeClaim).DeepCopy(), w.Old.(*corev1.PersistentVolumeClaim).DeepCopy()
	for _, c := range []*corev1.PersistentVolumeClaim{claim, old} {
		c.TypeMeta = old.TypeMeta
		c.ResourceVersion, c.ManagedFields = "", nil
		c.Status.Capacity, c.Status.Conditions = nil, nil
		c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
	}
	if equality.Semantic.DeepEqual(old, claim) {
		return nil
	}
	changes, err := changesOf(old, claim)
	if err != nil {
		return w.Forbidden(err)
	}
	return w.Forbiddenf("node %q is not allowed to update fields other than status.quantity and status.conditions: %s",
		w.node, changes)
}

// changesOf returns the merge patch that changes old into obj.
func changesOf(old, obj registry.Object) ([]byte, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreateMergePatch(before, after)
}

// ownedBy checks the owner references of a mirror pod. It must have exactly one, which names its node as the
// controller.
func (p *plugin) ownedBy(ctx context.Context, w *write, pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 1 {
		return w.Forbiddenf("node %q can only create pods with a single owner reference set to itself", w.node)
	}
	if len(pod.OwnerReferences) == 0 {
		return w.Forbiddenf("node %q can only create pods with an owner reference set to itself", w.node)
	}
	owner := &pod.OwnerReferences[0]
	if owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != w.node {
		return w.Forbiddenf("node %q can only create pods with an owner reference set to itself", w.node)
	}
	if !ptr.Deref(owner.Controller, false) {
		return w.Forbiddenf("node %q can only create pods with a controller owner reference set to itself", w.node)
	}
	if ptr.Deref(owner.BlockOwnerDeletion, false) {
		return w.Forbiddenf("node %q must not set blockOwnerDeletion on an owner reference", w.node)
	}
	found, err := p.find(ctx, nodes, "", w.node, "node")
	switch {
	case kerrors.IsNotFound(err):
		return err
	case err != nil:
		return w.Forbiddenf("error looking up node %s to verify uid: %w", w.node, err)
	case found.GetUID() != owner.UID:
		return w.Forbiddenf("node %s UID mismatch: expected %s got %s", w.node, owner.UID, found.GetUID())
	}
	return nil
}
