package blockers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// remover is who removes a finalizer of Kubernetes, and when.
type remover struct{ owner, when string }

// removers are the removers of finalizers of Kubernetes. A name that ends with "/" is the beginning of names.
var removers = map[string]remover{
	string(corev1.FinalizerKubernetes): {"the namespace controller", "when nothing is left in the namespace"},
	metav1.FinalizerDeleteDependents:   {"the garbage collector", "when no dependent with blockOwnerDeletion is left"},
	metav1.FinalizerOrphanDependents:   {"the garbage collector", "when no dependent refers to the object any more"},

	"kubernetes.io/pvc-protection": {"the PVC protection controller of kube-controller-manager", "when no pod uses the claim"},
	"kubernetes.io/pv-protection":  {"the PV protection controller of kube-controller-manager", "when the volume is bound to no claim"},
	"kubernetes.io/vac-protection": {"the VAC protection controller of kube-controller-manager", "when no claim or volume uses the class"},
	"kubernetes.io/pv-controller": {
		"the persistent volume controller of kube-controller-manager", "when the storage behind the volume is deleted",
	},
	"batch.kubernetes.io/job-tracking": {
		"the Job controller of kube-controller-manager", "when the pod is counted in the status of its Job",
	},
	"resource.kubernetes.io/delete-protection": {
		"the resource claim controller of kube-controller-manager", "when the claim is not reserved or allocated any more",
	},
	"scheduling.k8s.io/podgroup-protection": {
		"the pod group protection controller of kube-controller-manager", "when no pod belongs to the group",
	},
	"customresourcecleanup.apiextensions.k8s.io": {"the API server", "when the custom resources of the definition are deleted"},
	"service.kubernetes.io/load-balancer-cleanup": {
		"the service controller of the cloud-controller-manager", "when the load balancer is deleted",
	},
	"external-provisioner.volume.kubernetes.io/finalizer": {
		"the external-provisioner of the CSI driver", "when the storage behind the volume is deleted",
	},
	"external-attacher/": {"the external-attacher of the CSI driver", "when the volume is detached from its nodes"},
	"snapshot.storage.kubernetes.io/pvc-as-source-protection": {
		"the snapshot controller", "when no snapshot is being made of the claim",
	},
	"snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection": {
		"the snapshot controller", "when no claim is being made from the snapshot",
	},
	"snapshot.storage.kubernetes.io/volumesnapshot-bound-protection": {
		"the snapshot controller", "when the content of the snapshot is deleted",
	},
	"snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection": {
		"the snapshot controller", "when the snapshot that the content is bound to is deleted",
	},
}

// removerOf returns the remover of a finalizer of Kubernetes.
func removerOf(finalizer string) (remover, bool) {
	if r, ok := removers[finalizer]; ok {
		return r, true
	}
	prefix, _, found := strings.Cut(finalizer, "/")
	r, ok := removers[prefix+"/"]
	return r, ok && found
}

// addFinalizers adds the finalizers of the object.
func (s *search) addFinalizers() {
	names := s.obj.GetFinalizers()
	if n, ok := s.obj.(*corev1.Namespace); ok {
		for _, name := range n.Spec.Finalizers {
			names = append(slices.Clip(names), string(name))
		}
	}
	owners := ownersOf(s.obj)
	for _, name := range names {
		b := Blocker{Type: Finalizer, Name: name, Since: s.deletionBegan(), Change: s.added[name]}
		setters, change := owners[name].describe()
		if b.Change == nil {
			b.Change = change
		} else if at := b.Change.Time; at != nil && at.After(b.Since.Time) {
			b.Since = &metav1.Time{Time: at.Time}
		}
		r, known := removerOf(name)
		switch {
		case known:
			b.Owner, b.Message = r.owner, fmt.Sprintf("%s removes it %s.", capitalized(r.owner), r.when)
		case setters != "":
			b.Owner = setters
			b.Message = fmt.Sprintf("Its controller has to remove it. By managedFields, it was set by %s.", setters)
		default:
			b.Message = "Its controller has to remove it. Which one that is, is not known: nobody owns the field."
		}
		s.add(b)
	}
}

// holders returns the finalizers of another object, at most maxNamed. managers, unless nil, has its managedFields.
func holders(finalizers []string, managers metav1.Object) (out []Holder) {
	owners := map[string]*owners{}
	if managers != nil {
		owners = ownersOf(managers)
	}
	for _, name := range finalizers[:min(len(finalizers), maxNamed)] {
		r, known := removerOf(name)
		if !known {
			r.owner, _ = owners[name].describe()
		}
		out = append(out, Holder{name, r.owner})
	}
	return out
}

// owners are the field managers that own a finalizer.
type owners struct {
	names  []string
	change *history.Change // what managedFields say about the change of the first of them
}

// ownersOf returns the owners of each finalizer of an object. An object may have very many finalizers, so its managedFields are read
// once for all of them.
func ownersOf(obj metav1.Object) map[string]*owners {
	all := map[string]*owners{}
	for _, entry := range obj.GetManagedFields() {
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &fields) != nil {
			continue
		}
		for field := range fields.Metadata.Finalizers {
			var finalizer string
			value, ok := strings.CutPrefix(field, "v:")
			if !ok || json.Unmarshal([]byte(value), &finalizer) != nil {
				continue
			}
			o := all[finalizer]
			if o == nil {
				o = &owners{change: changeOfManager(&entry)}
				all[finalizer] = o
			}
			if len(o.names) <= maxNamed && !slices.Contains(o.names, entry.Manager) {
				o.names = append(o.names, entry.Manager)
			}
		}
	}
	return all
}

// describe returns the owners as "the field manager a", and the change of the first of them; "" and nil if nobody owns the finalizer.
func (o *owners) describe() (owner string, change *history.Change) {
	switch {
	case o == nil:
		return "", nil
	case len(o.names) == 1:
		return "the field manager " + o.names[0], o.change
	case len(o.names) > maxNamed:
		return "the field managers " + strings.Join(o.names[:maxNamed], " and ") + " and others", o.change
	}
	return "the field managers " + strings.Join(o.names, " and "), o.change
}

// changeOfManager returns what an entry of managedFields says about the last change of its manager.
func changeOfManager(entry *metav1.ManagedFieldsEntry) *history.Change {
	c := &history.Change{Verb: strings.ToLower(string(entry.Operation)), Subresource: entry.Subresource, FieldManager: entry.Manager}
	if entry.Time != nil {
		c.Time = history.TimeOf(entry.Time.Time)
	}
	return c
}

// capitalized returns a text with a capital letter at the beginning.
func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// shorten returns at most the first KiB of a text that somebody else has written.
func shorten(text string) string {
	const most = 1 << 10
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
