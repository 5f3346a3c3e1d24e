package kubectlhistory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// undeletedUID is the annotation of an object that came back, with the UID that it had before.
const undeletedUID = "history.keelson.dev/undeleted-uid"

// tokenSecret is the type of a Secret with a token of a ServiceAccount.
const tokenSecret = "kubernetes.io/service-account-token"

// clean returns what is created to bring an object back: it without the fields that the server or a controller sets. notes are
// for the report. docs/history.md has the rules.
func clean(r resource, was *unstructured.Unstructured) (o *unstructured.Unstructured, notes []string) {
	o = without(was, "resourceVersion", "uid", "creationTimestamp", "managedFields", "selfLink", "generation", "deletionTimestamp",
		"deletionGracePeriodSeconds", "finalizers")
	delete(o.Object, "status")
	o.SetAPIVersion(r.apiVersion())
	o.SetKind(r.Kind)
	annotate(o, undeletedUID, string(was.GetUID()))
	if own := slices.DeleteFunc(was.GetFinalizers(), ofKubernetes); len(own) > 0 {
		notes = append(notes, "without its finalizers "+strings.Join(own, ", "))
	}
	if !builtIn(r.Group) {
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

// ofKubernetes reports whether a finalizer is one of Kubernetes itself, which the part that needs it adds again.
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

// variant is a form in which an object may be created.
type variant struct {
	object *unstructured.Unstructured
	note   string
}

// variants returns the forms in which an object is tried, the best one first: a Service keeps its addresses and node ports
// if they are free.
func variants(r resource, o *unstructured.Unstructured) []variant {
	out := []variant{{object: o}}
	if r.Group != "" || r.Kind != "Service" {
		return out
	}
	ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP")
	if ip == "" || ip == "None" {
		return out
	}
	other := o.DeepCopy()
	unstructured.RemoveNestedField(other.Object, "spec", "clusterIP")
	unstructured.RemoveNestedField(other.Object, "spec", "clusterIPs")
	out = append(out, variant{other, "with another cluster IP"})
	ports, _, _ := unstructured.NestedSlice(other.Object, "spec", "ports")
	_, chosen, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "healthCheckNodePort") // whether a node port is named
	for _, p := range ports {
		if port, ok := p.(map[string]any); ok {
			_, node := port["nodePort"]
			delete(port, "nodePort")
			chosen = chosen || node
		}
	}
	if !chosen {
		return out
	}
	// The address is tried again: perhaps only a port is taken.
	for _, v := range slices.Clone(out) {
		free := v.object.DeepCopy()
		unstructured.RemoveNestedField(free.Object, "spec", "healthCheckNodePort")
		_ = unstructured.SetNestedSlice(free.Object, slices.Clone(ports), "spec", "ports") // spec is a map, as ports are in it
		note := "with other node ports"
		if v.note != "" {
			note = v.note + " and other node ports"
		}
		out = append(out, variant{free, note})
	}
	return out
}

// keepVolume decides about the volume of a claim: it stays if the volume exists and is for no other claim. volume is nil if it
// does not exist or cannot be read.
func keepVolume(claim, volume *unstructured.Unstructured) (note string) {
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
	if name == "" {
		return ""
	}
	if volume != nil {
		ref, bound, _ := unstructured.NestedMap(volume.Object, "spec", "claimRef")
		switch {
		case !bound:
			return ""
		case ref["namespace"] == claim.GetNamespace() && ref["name"] == claim.GetName():
			return fmt.Sprintf("the volume %s is bound again after its spec.claimRef.uid is removed", name)
		}
	}
	unstructured.RemoveNestedField(claim.Object, "spec", "volumeName")
	return fmt.Sprintf("without the volume %s, which is gone or used by another claim: the data does not come back", name)
}

// rewire gives an object the owners of now: uids has the UID of now for each one of before. Owners that are gone are dropped and
// returned.
func rewire(o *unstructured.Unstructured, uids map[string]string) (dropped []string) {
	references, found, _ := unstructured.NestedSlice(o.Object, "metadata", "ownerReferences")
	if !found {
		return nil
	}
	var kept []any
	for _, r := range references {
		owner, ok := r.(map[string]any)
		if !ok {
			continue
		}
		old, _ := owner["uid"].(string)
		if uids[old] == "" {
			dropped = append(dropped, fmt.Sprint(owner["kind"], " ", owner["name"]))
			continue
		}
		owner["uid"] = uids[old]
		kept = append(kept, owner)
	}
	if len(kept) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "ownerReferences")
		return dropped
	}
	_ = unstructured.SetNestedSlice(o.Object, kept, "metadata", "ownerReferences") // metadata is a map, it had the field
	return dropped
}

// revertedTo returns the object of now with the content, the labels and the annotations of then. Its status and the other
// metadata stay, and so do the fields that the server or a controller has set.
func revertedTo(r resource, now, then *unstructured.Unstructured) *unstructured.Unstructured {
	out := then.DeepCopy()
	out.SetAPIVersion(now.GetAPIVersion())
	out.SetKind(now.GetKind())
	for _, field := range []string{"metadata", "status"} {
		if value, found := now.Object[field]; found {
			out.Object[field] = value
		} else {
			delete(out.Object, field)
		}
	}
	out = out.DeepCopy()
	old := now.GetAnnotations()[undeletedUID]
	out.SetLabels(then.GetLabels())
	out.SetAnnotations(maps.Clone(then.GetAnnotations()))
	if old != "" {
		annotate(out, undeletedUID, old)
	}
	if !builtIn(r.Group) {
		return out
	}
	for _, field := range fieldsOfNow(r.Kind) {
		path := append([]string{"spec"}, field...)
		value, found, _ := unstructured.NestedFieldCopy(now.Object, path...)
		if found {
			_ = unstructured.SetNestedField(out.Object, value, path...) // what is no map is refused by the server
		} else {
			unstructured.RemoveNestedField(out.Object, path...)
		}
	}
	return out
}

// fieldsOfNow returns the fields of the spec of a built-in kind that cannot change, or that belong to a controller.
func fieldsOfNow(kind string) [][]string {
	switch kind {
	case "Namespace":
		return [][]string{{"finalizers"}}
	case "Pod":
		return [][]string{{"nodeName"}, {"ephemeralContainers"}}
	case "Service":
		return [][]string{{"clusterIP"}, {"clusterIPs"}}
	case "PersistentVolumeClaim":
		return [][]string{{"volumeName"}}
	case "PersistentVolume":
		return [][]string{{"claimRef"}}
	case "Job":
		return [][]string{{"selector"}, {"template", "metadata", "labels"}}
	}
	return nil
}
