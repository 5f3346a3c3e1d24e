package write

import (
	"context"
	"strings"

	"github.com/keelson-dev/keelson/request"

	"github.com/keelson-dev/keelson/registry"
)

// RemoveDuplicateOwners removes owner references that stand twice in the body of a request and warns of them. Requests
// that send a whole object do so before admission.
func RemoveDuplicateOwners(ctx context.Context, obj registry.Object) {
	removeDuplicateOwners(ctx, obj, "")
}

// removeDuplicateOwners removes owner references that stand twice and warns of them. when
// tells the client at which point they were found.
func removeDuplicateOwners(ctx context.Context, obj registry.Object, when string) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	kept := refs[:0:0]
	var twice []string
	for _, ref := range refs {
		same := func(i int) bool { return equalParts(&kept[i], &ref) }
		found := false
		for i := range kept {
			if found = same(i); found {
				break
			}
		}
		if !found {
			kept = append(kept, ref)
			continue
		}
		twice = append(twice, string(ref.UID))
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
