package kubectlhistory

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	annotate(o, undeletedUID, annotation)
	return o
}

func TestManagersThen(t *testing.T) {
	for _, c := range []struct {
		name       string
		then, now  *unstructured.Unstructured
		renamed    map[string]string
		wantFields string
	}{
		{
			"reverted", managed("", "helm=a", "kubelet/status=x"), managed("", "helm=b", "kubectl-history=a", "kubelet/status=y", "other=c"), nil,
			"helm={f:a} kubelet/status={f:y} other={f:c}",
		},
		{
			"undeleted", managed("", "helm=a", "kubelet/status=x"), managed("old", "kubectl-history=all"), nil,
			"helm={f:a} kubectl-history={f:metadata:{f:annotations:{f:history.keelson.dev/undeleted-uid}}}",
		},
		{"undeleted twice", managed("older", "helm=a", "kubectl-history=own"), managed("old", "kubectl-history=all"), nil, "helm={f:a} kubectl-history={f:own}"},
		{"nobody", managed(""), managed("old", "kubectl-history=all"), nil, "kubectl-history={f:all}"},
		{"only a subresource", managed("", "kubelet/status=x"), managed("old", "kubectl-history=all"), nil, "kubectl-history={f:all}"},
		{"owners", managed("", "helm=uid-1"), managed(""), map[string]string{"uid-1": "uid-2"}, "helm={f:uid-2}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries, err := managersThen(c.then, c.now, c.renamed)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				name := e.Manager
				if e.Subresource != "" {
					name += "/" + e.Subresource
				}
				got = append(got, name+"="+strings.NewReplacer(":{}", "", `"`, "").Replace(e.FieldsV1.GetRawString()))
			}
			if text := strings.Join(got, " "); text != c.wantFields {
				t.Errorf("%s, want %s", text, c.wantFields)
			}
		})
	}
}
