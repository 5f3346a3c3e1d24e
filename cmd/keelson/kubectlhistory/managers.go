package kubectlhistory

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ownFields are the fields that an undeleted object has from this command, in the form of managedFields.
const ownFields = `{"f:metadata":{"f:annotations":{"f:` + undeletedUID + `":{}}}}`

// managersThen returns the managedFields of an object of now that has the content of then: its fields belong to their managers of
// then, those of its subresources to those of now. Who has changed it since stays a manager too, but for this command. renamed has
// the UIDs of now of owners.
//
// Without it the fields would belong to this command. A server-side apply of their manager (kubectl apply --server-side, Helm 4)
// would find conflicts, and would not remove what it has removed from its configuration.
func managersThen(then, now *unstructured.Unstructured, renamed map[string]string) ([]metav1.ManagedFieldsEntry, error) {
	entries := then.GetManagedFields()
	if len(renamed) > 0 {
		text, err := json.Marshal(entries)
		if err != nil {
			return nil, err
		}
		var pairs []string
		for old, uid := range renamed {
			pairs = append(pairs, old, uid)
		}
		if entries = nil; json.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(string(text))), &entries) != nil {
			entries = then.GetManagedFields()
		}
	}
	type key struct {
		manager, version, subresource string
		operation                     metav1.ManagedFieldsOperationType
	}
	var out []metav1.ManagedFieldsEntry
	had := map[key]bool{}
	for _, e := range entries {
		if e.Subresource == "" {
			had[key{e.Manager, e.APIVersion, e.Subresource, e.Operation}] = true
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return now.GetManagedFields(), nil
	}
	for _, e := range now.GetManagedFields() {
		if had[key{e.Manager, e.APIVersion, e.Subresource, e.Operation}] {
			continue
		}
		if e.Manager == fieldManager && e.Subresource == "" {
			if now.GetAnnotations()[undeletedUID] == "" {
				continue
			}
			e.FieldsV1 = metav1.NewFieldsV1(ownFields)
		}
		out = append(out, e)
	}
	return out, nil
}

// restoreManagers gives the fields of an object that was created or updated to their managers of then. It returns a note for the
// report if that fails: the object has its content nevertheless.
func (s *session) restoreManagers(r resource, then, now *unstructured.Unstructured, uids map[string]string) (note string) {
	const attempts = 5 // others change the object too
	renamed := map[string]string{}
	for _, owner := range then.GetOwnerReferences() {
		if uid := uids[string(owner.UID)]; uid != "" {
			renamed[string(owner.UID)] = uid
		}
	}
	uid := now.GetUID()
	for attempt := 1; ; attempt++ {
		managers, err := managersThen(then, now, renamed)
		if err == nil && reflect.DeepEqual(managers, now.GetManagedFields()) {
			return ""
		}
		if err == nil {
			target := now.DeepCopy()
			target.SetManagedFields(managers)
			_, err = s.client.write(s.ctx, http.MethodPut, r, target, false)
		}
		if kerrors.IsConflict(err) && attempt < attempts {
			if now, err = s.client.get(s.ctx, r, now.GetNamespace(), now.GetName(), ""); err == nil && now.GetUID() == uid {
				continue
			}
		}
		if err != nil && !kerrors.IsNotFound(err) {
			return "its fields belong to " + fieldManager + ", not to their managers of then: " + err.Error()
		}
		return ""
	}
}
