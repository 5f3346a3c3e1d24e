package managedfields

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// statusResets are the fields that an update of the status does not own, for kinds in which these are not only the
// spec. As in kube-apiserver, they are not all fields that such an update cannot change: a manager owns the others
// although they did not change.
var statusResets = map[schema.GroupResource][][]any{
	{Resource: "pods"}: {
		{"spec"}, {"metadata", "deletionTimestamp"}, {"metadata", "ownerReferences"},
	},
	{Group: "apps", Resource: "deployments"}:                                         {{"spec"}, {"metadata", "labels"}},
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                 {{"spec"}, {"metadata"}},
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}: {{"spec"}, {"metadata"}},
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                       {{"spec"}, {"metadata"}},
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                           {{"spec"}, {"metadata"}},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}: {{"spec"}, {"metadata"}},
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                         {{"spec"}, {"metadata"}},
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                  {{"spec"}, {"metadata"}},
	{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}:               {{"spec"}, {"metadata"}},
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:                           {{"spec"}, {"metadata"}},
	{Group: "resource.k8s.io", Resource: "devicetaintrules"}:                         {{"spec"}, {"metadata"}},
	{Group: "resource.k8s.io", Resource: "resourcepoolstatusrequests"}:               {{"spec"}, {"metadata"}},
	{Group: "scheduling.k8s.io", Resource: "podgroups"}:                              {{"spec"}, {"metadata"}},
	{Group: "scheduling.k8s.io", Resource: "compositepodgroups"}:                     {{"spec"}, {"metadata"}},
	{Group: "lifecycle.k8s.io", Resource: "evictions"}:                               {{"spec"}, {"metadata"}},
	{Group: "lifecycle.k8s.io", Resource: "evictionrequests"}:                        {{"spec"}, {"metadata"}},
	{Group: "internal.apiserver.k8s.io", Resource: "storageversions"}:                {{"spec"}, {"metadata"}},
	{Group: "storagemigration.k8s.io", Resource: "storageversionmigrations"}:         {{"spec"}, {"metadata"}},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:           {{"spec"}, {"status", "conditions"}},
}

// ResetFields returns the fields that requests to a kind, or to one of its subresources, cannot set, by version; nil if
// there are none.
func ResetFields(k *registry.Kind, subresource string) map[fieldpath.APIVersion]*fieldpath.Set {
	if k.Unstructured() {
		all := resetIn(k, treeResetPaths(k, subresource))
		if len(all) == 0 {
			return nil
		}
		// kube-apiserver has reset fields of the version of the request only. If managers applied a status in another
		// version, a new status conflicts with it, although it is not stored.
		own := fieldpath.APIVersion(schema.GroupVersion{Group: k.Group, Version: k.Storage.Version}.String())
		return map[fieldpath.APIVersion]*fieldpath.Set{own: all[own]}
	}
	return resetIn(k, resetPaths(k, subresource))
}

// treeResetPaths are the reset fields of a custom resource.
func treeResetPaths(k *registry.Kind, subresource string) [][]any {
	switch {
	case subresource == "status":
		return [][]any{{"metadata"}, {"spec"}}
	case subresource == "" && k.Subresource("status") != nil:
		return [][]any{{"status"}}
	}
	return nil
}

// resetPaths are the reset fields of a built-in kind.
func resetPaths(k *registry.Kind, subresource string) [][]any {
	certificate := k.Group == "certificates.k8s.io" && k.Resource == "certificatesigningrequests"
	switch {
	case subresource == "status":
		if paths, ok := statusResets[k.GroupResource()]; ok {
			return paths
		}
		return [][]any{{"spec"}}
	case subresource == "approval" && certificate:
		return [][]any{{"spec"}, {"status", "certificate"}}
	case subresource == "finalize" && k.Group == "" && k.Resource == "namespaces":
		return [][]any{{"status"}}
	case subresource != "":
		return nil
	case certificate:
		return [][]any{{"spec"}, {"status"}}
	case k.Strategy.Status != nil:
		return [][]any{{"status"}}
	}
	return nil
}

// resetIn returns the set of paths for all versions of a kind.
func resetIn(k *registry.Kind, paths [][]any) map[fieldpath.APIVersion]*fieldpath.Set {
	if len(paths) == 0 {
		return nil
	}
	set := fieldpath.NewSet()
	for _, path := range paths {
		set.Insert(fieldpath.MakePathOrDie(path...))
	}
	out := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, v := range k.Versions {
		gv := schema.GroupVersion{Group: k.Group, Version: v.Name}
		if v.Group != "" {
			gv.Group = v.Group
		}
		out[fieldpath.APIVersion(gv.String())] = set
	}
	return out
}
