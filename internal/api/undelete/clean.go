package undelete

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// cleaned returns the object that a client creates to bring back the object was. It is a copy of was without the
// fields that the server or a controller sets, such as the UID and the status. notes say what else is different,
// for example that a finalizer is missing. docs/history.md has the rules.
func cleaned(r *resource, was *unstructured.Unstructured) (o *unstructured.Unstructured, notes []string) {
	o = was.DeepCopy()
	for _, field := range []string{
		"resourceVersion", "uid", "creationTimestamp", "managedFields", "selfLink", "generation", "deletionTimestamp",
		"deletionGracePeriodSeconds", "finalizers",
	} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	delete(o.Object, "status")
	annotate(o, UndeletedUID, string(was.GetUID()))
	if own := slices.DeleteFunc(was.GetFinalizers(), ofKubernetes); len(own) > 0 {
		notes = append(notes, "without its finalizers "+strings.Join(own, ", "))
	}
	if !r.builtIn {
		return o, notes
	}
	switch r.Kind {
	case "Namespace":
		unstructured.RemoveNestedField(o.Object, "spec", "finalizers")
	case "Pod":
		unstructured.RemoveNestedField(o.Object, "spec", "nodeName")
		unstructured.RemoveNestedField(o.Object, "spec", "ephemeralContainers")
	case "Job":
		cleanJob(o)
	case "Secret":
		if o.Object["type"] == tokenSecret {
			delete(o.Object, "data")
			annotate(o, "kubernetes.io/service-account.uid", "")
			notes = append(notes, "without its token, which was for a ServiceAccount of another UID")
		}
	case "PersistentVolumeClaim":
		annotate(o, "pv.kubernetes.io/bind-completed", "")
		annotate(o, "pv.kubernetes.io/bound-by-controller", "")
		annotate(o, "volume.kubernetes.io/selected-node", "")
	case "PersistentVolume":
		unstructured.RemoveNestedField(o.Object, "spec", "claimRef", "uid")
		unstructured.RemoveNestedField(o.Object, "spec", "claimRef", "resourceVersion")
		annotate(o, "pv.kubernetes.io/bound-by-controller", "")
	}
	return o, notes
}

// annotate sets an annotation; the value "" removes it.
func annotate(o *unstructured.Unstructured, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[key] = value; value == "" {
		delete(annotations, key)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
}

// ofKubernetes reports whether a finalizer is one of Kubernetes itself. The component that needs such a finalizer
// adds it again.
func ofKubernetes(finalizer string) bool {
	domain, _, found := strings.Cut(finalizer, "/")
	return !found || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io")
}

// cleanJob removes the selector and the labels that the server makes from the UID of a Job. Those that a user has made stay.
func cleanJob(o *unstructured.Unstructured) {
	if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
		return
	}
	unstructured.RemoveNestedField(o.Object, "spec", "selector")
	for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"} {
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "labels", label)
		unstructured.RemoveNestedField(o.Object, "metadata", "labels", label)
	}
}

// alternatives returns other forms in which an object may be created, the best one first: a Service keeps its addresses and node ports if
// they are free.
func alternatives(r *resource, o *unstructured.Unstructured) (out []Alternative) {
	if !r.is("", "Service") {
		return nil
	}
	ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP")
	if ip == "" || ip == "None" {
		return nil
	}
	other := o.DeepCopy()
	unstructured.RemoveNestedField(other.Object, "spec", "clusterIP")
	unstructured.RemoveNestedField(other.Object, "spec", "clusterIPs")
	out = append(out, Alternative{other.Object, "with another cluster IP"})
	// The cluster IP is kept in the next alternative: perhaps only a node port is taken.
	if free, chosen := withoutNodePorts(o); chosen {
		out = append(out, Alternative{free.Object, "with other node ports"})
		free, _ = withoutNodePorts(other)
		out = append(out, Alternative{free.Object, "with another cluster IP and other node ports"})
	}
	return out
}

// withoutNodePorts returns a Service without the node ports that it names. chosen is false if it names none.
func withoutNodePorts(o *unstructured.Unstructured) (free *unstructured.Unstructured, chosen bool) {
	free = o.DeepCopy()
	_, chosen, _ = unstructured.NestedFieldNoCopy(o.Object, "spec", "healthCheckNodePort")
	unstructured.RemoveNestedField(free.Object, "spec", "healthCheckNodePort")
	ports, _, _ := unstructured.NestedFieldNoCopy(free.Object, "spec", "ports")
	list, _ := ports.([]any)
	for _, p := range list {
		if port, ok := p.(map[string]any); ok {
			_, node := port["nodePort"]
			delete(port, "nodePort")
			chosen = chosen || node
		}
	}
	return free, chosen
}

// claimRef is the claim that a volume is for; the zero value is none.
type claimRef struct{ namespace, name string }

// claimOf returns the claim of a PersistentVolume.
func claimOf(volume *unstructured.Unstructured) *claimRef {
	ref, _, _ := unstructured.NestedMap(volume.Object, "spec", "claimRef")
	namespace, _ := ref["namespace"].(string)
	name, _ := ref["name"].(string)
	return &claimRef{namespace, name}
}

// keepVolume removes the name of the volume from a claim, unless the volume exists and is for no other claim. find
// returns the claim of a volume. It returns nil if there is no such volume or the user may not read it.
func keepVolume(claim *unstructured.Unstructured, find func(name string) (*claimRef, error)) (note string, err error) {
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
	if name == "" {
		return "", nil
	}
	ref, err := find(name)
	if err != nil {
		return "", err
	}
	if ref != nil {
		switch *ref {
		case claimRef{}:
			return "", nil
		case claimRef{claim.GetNamespace(), claim.GetName()}:
			return fmt.Sprintf("the volume %s is bound again after its spec.claimRef.uid is removed", name), nil
		}
	}
	unstructured.RemoveNestedField(claim.Object, "spec", "volumeName")
	return fmt.Sprintf("without the volume %s, which is gone or used by another claim: the data does not come back", name), nil
}

// rewire replaces the UIDs in owner references: find returns the current UID of an owner, "" if the owner no longer
// exists. Owners that are gone are dropped and returned.
func rewire(o *unstructured.Unstructured, find func(metav1.OwnerReference) types.UID) (dropped []string) {
	var kept []any
	references, found, _ := unstructured.NestedSlice(o.Object, "metadata", "ownerReferences")
	for _, r := range references {
		owner, ok := r.(map[string]any)
		if !ok {
			continue
		}
		text := func(field string) string { value, _ := owner[field].(string); return value }
		uid := find(metav1.OwnerReference{
			APIVersion: text("apiVersion"), Kind: text("kind"), Name: text("name"), UID: types.UID(text("uid")),
		})
		if uid == "" {
			dropped = append(dropped, fmt.Sprint(owner["kind"], " ", owner["name"]))
			continue
		}
		owner["uid"] = string(uid)
		kept = append(kept, owner)
	}
	switch {
	case len(kept) > 0:
		_ = unstructured.SetNestedSlice(o.Object, kept, "metadata", "ownerReferences") // metadata is a map, it had the field
	case found:
		unstructured.RemoveNestedField(o.Object, "metadata", "ownerReferences")
	}
	return dropped
}

// managersOf returns the managedFields for an object with the old content. Its fields belong to their old
// managers, and the annotation UndeletedUID to the client, whose entry is own. A nil result means that the old
// managers are not known.
//
// Otherwise all fields would belong to the client. A server-side apply of their manager (kubectl apply
// --server-side, Helm 4) would find conflicts, and would not remove the fields that it no longer sets.
func managersOf(
	then, target *unstructured.Unstructured, own metav1.ManagedFieldsEntry, find func(metav1.OwnerReference) types.UID,
) []metav1.ManagedFieldsEntry {
	var pairs []string
	for _, owner := range then.GetOwnerReferences() {
		if uid := find(owner); uid != "" && uid != owner.UID {
			pairs = append(pairs, string(owner.UID), string(uid))
		}
	}
	renamed := strings.NewReplacer(pairs...)
	var out []metav1.ManagedFieldsEntry
	isOwn := func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == own.Manager && e.Operation == own.Operation && e.APIVersion == own.APIVersion
	}
	for _, e := range then.GetManagedFields() {
		if e.Subresource != "" {
			continue
		}
		if e.FieldsV1 != nil {
			if text := renamed.Replace(e.FieldsV1.GetRawString()); json.Valid([]byte(text)) {
				e.FieldsV1 = metav1.NewFieldsV1(text)
			}
		}
		out = append(out, e)
	}
	if len(out) > 0 && own.Manager != "" && target.GetAnnotations()[UndeletedUID] != "" && !slices.ContainsFunc(out, isOwn) {
		out = append(out, own)
	}
	return out
}

// reverted returns the current object with the content, the labels and the annotations of the old one. It keeps the current
// status, the other metadata, and the fields that the server or a controller has set.
func reverted(r *resource, now, then *unstructured.Unstructured) *unstructured.Unstructured {
	out := then.DeepCopy()
	for _, field := range []string{"metadata", "status"} {
		if value, found := now.Object[field]; found {
			out.Object[field] = value
		} else {
			delete(out.Object, field)
		}
	}
	out = out.DeepCopy()
	old := now.GetAnnotations()[UndeletedUID]
	out.SetLabels(then.GetLabels())
	out.SetAnnotations(maps.Clone(then.GetAnnotations()))
	if old != "" {
		annotate(out, UndeletedUID, old)
	}
	if !r.builtIn {
		return out
	}
	for _, field := range fieldsOfNow[r.Kind] {
		path := append([]string{"spec"}, field...)
		value, found, _ := unstructured.NestedFieldCopy(now.Object, path...)
		if found {
			_ = unstructured.SetNestedField(out.Object, value, path...) // the server refuses a value that is not a map
		} else {
			unstructured.RemoveNestedField(out.Object, path...)
		}
	}
	return out
}

// fieldsOfNow are the fields of the spec of a built-in kind that cannot change, or that belong to a controller.
var fieldsOfNow = map[string][][]string{
	"Namespace":             {{"finalizers"}},
	"Pod":                   {{"nodeName"}, {"ephemeralContainers"}},
	"Service":               {{"clusterIP"}, {"clusterIPs"}},
	"PersistentVolumeClaim": {{"volumeName"}},
	"PersistentVolume":      {{"claimRef"}},
	"Job":                   {{"selector"}, {"template", "metadata", "labels"}},
}
