package write

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// RemoveDuplicateOwners removes duplicate owner references from the body of a request and warns of them. Requests
// that send a whole object do so before admission.
func RemoveDuplicateOwners(ctx context.Context, obj registry.Object) {
	removeDuplicateOwners(ctx, obj, "")
}

// removeDuplicateOwners removes duplicate owner references with a warning. when is a part of the warning: the step in
// which they were found. References are duplicates only if all their fields are equal: two references to one
// owner that differ in blockOwnerDeletion are both kept.
func removeDuplicateOwners(ctx context.Context, obj registry.Object, when string) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	// The capacity is 0, so that append makes a new list and does not overwrite refs.
	kept := refs[:0:0]
	var twice []string
	seen := make(map[ownerKey]bool, len(refs))
	for i := range refs {
		key := keyOf(&refs[i])
		if seen[key] {
			twice = append(twice, string(refs[i].UID))
			continue
		}
		seen[key] = true
		kept = append(kept, refs[i])
	}
	if len(twice) == 0 {
		return
	}
	obj.SetOwnerReferences(kept)
	request.Warn(
		ctx,
		".metadata.ownerReferences contains duplicate entries"+when+"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "+strings.Join(twice, ", "),
	)
}

// ownerKey is an owner reference in comparable form: a request may have a hundred thousand.
type ownerKey struct {
	apiVersion, kind, name, uid string
	controller, blocks          optionalBool
}

// optionalBool is a *bool: absent, false or true.
type optionalBool struct{ set, value bool }

func keyOf(r *metav1.OwnerReference) ownerKey {
	optional := func(b *bool) optionalBool { return optionalBool{b != nil, b != nil && *b} }
	return ownerKey{r.APIVersion, r.Kind, r.Name, string(r.UID), optional(r.Controller), optional(r.BlockOwnerDeletion)}
}
