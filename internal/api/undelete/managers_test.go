package undelete

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// managed returns an object whose managedFields have one entry for each word MANAGER[/SUBRESOURCE][=FIELDS].
func managed(annotation string, words ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	var entries []metav1.ManagedFieldsEntry
	for _, w := range words {
		w, fields, _ := strings.Cut(w, "=")
		manager, subresource, _ := strings.Cut(w, "/")
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:` + fields + `":{}}`),
		})
	}
	o.SetManagedFields(entries)
	annotate(o, UndeletedUID, annotation)
	return o
}

func TestManagersOf(t *testing.T) {
	for _, c := range []struct {
		name         string
		then, target *unstructured.Unstructured
		renamed      map[types.UID]types.UID
		wantFields   string
	}{
		{"reverted", managed("", "helm=a", "kubelet/status=x"), managed(""), nil, "helm={f:a}"},
		{
			"undeleted", managed("", "helm=a", "kubelet/status=x"), managed("old"), nil,
			"helm={f:a} kubectl-history={f:metadata:{f:annotations:{f:history.keelson.dev/undeleted-uid}}}",
		},
		{"undeleted twice", managed("older", "helm=a", "kubectl-history=own"), managed("old"), nil, "helm={f:a} kubectl-history={f:own}"},
		{"nobody", managed(""), managed("old"), nil, ""},
		{"only a subresource", managed("", "kubelet/status=x"), managed("old"), nil, ""},
		{"owners", managed("", "helm=uid-1"), managed(""), map[types.UID]types.UID{"uid-1": "uid-2"}, "helm={f:uid-2}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var owners []metav1.OwnerReference
			for uid := range c.renamed {
				owners = append(owners, metav1.OwnerReference{UID: uid})
			}
			c.then.SetOwnerReferences(owners)
			own := managed("", "kubectl-history=x").GetManagedFields()[0]
			own.FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:history.keelson.dev/undeleted-uid":{}}}}`)
			var got []string
			for _, e := range managersOf(c.then, c.target, own, func(owner metav1.OwnerReference) types.UID { return c.renamed[owner.UID] }) {
				got = append(got, e.Manager+"="+strings.NewReplacer(":{}", "", `"`, "").Replace(e.FieldsV1.GetRawString()))
			}
			if text := strings.Join(got, " "); text != c.wantFields {
				t.Errorf("%s, want %s", text, c.wantFields)
			}
		})
	}
}
