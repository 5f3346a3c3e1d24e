package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// APIResources returns what discovery shows of the kind in a group and version: the resource and its subresources,
// ordered by name.
func (k *Kind) APIResources(gv schema.GroupVersion) []metav1.APIResource {
	verbs := k.Requests.Verbs
	if verbs == nil {
		verbs = AllVerbs
	}
	out := make([]metav1.APIResource, 0, 1+len(k.Subresources))
	out = append(out, metav1.APIResource{
		Name: k.Resource, SingularName: k.SingularName(), Namespaced: k.Namespaced, Kind: k.Name,
		Verbs: verbs, ShortNames: k.ShortNames, Categories: k.Categories, StorageVersionHash: k.storageVersionHash(),
	})
	for i := range k.Subresources {
		s := &k.Subresources[i]
		if s.Name == "" { // how the resource itself is created
			continue
		}
		r := metav1.APIResource{Name: k.Resource + "/" + s.Name, Namespaced: k.Namespaced, Kind: k.Name, Verbs: s.Verbs}
		if s.GVK.Kind != "" {
			r.Kind = s.GVK.Kind
			if s.GVK.GroupVersion() != gv {
				r.Group, r.Version = s.GVK.Group, s.GVK.Version
			}
		}
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// storageVersionHash returns "" for a kind that stores nothing.
func (k *Kind) storageVersionHash() string {
	if k.Storage.Path == "" {
		return ""
	}
	group, version, found := strings.Cut(k.StoredVersion(), "/")
	if !found {
		group, version = "", group
	}
	return StorageVersionHash(group, version, k.Name)
}

// StorageVersionHash returns the storageVersionHash of discovery: the first 8 bytes of the SHA-256 of
// "group/version/kind", in base64. Clients that migrate stored objects compare it to see that the storage version of
// a kind has changed.
func StorageVersionHash(group, version, kind string) string {
	const bytesKept = 8
	sum := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
	return base64.StdEncoding.EncodeToString(sum[:bytesKept])
}
