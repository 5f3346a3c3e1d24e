package policystatus

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// TestRecentTypes checks that a type is kept until its document changes or enough other types were used after it.
func TestRecentTypes(t *testing.T) {
	var r recentTypes
	kind := func(name string) schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: name} }
	document, types := []byte("1"), map[string]*apiservercel.DeclType{}
	for _, name := range []string{"A", "B", "C", "D"} {
		types[name] = &apiservercel.DeclType{}
		r.add(recentType{kind(name), name, document, types[name]})
	}
	for name, typ := range types {
		if got := r.find(kind(name), name, []byte("1")); got != typ {
			t.Errorf("%s is not found", name)
		}
	}
	if r.find(kind("A"), "A", []byte("2")) != nil || r.find(kind("A"), "A1", document) != nil {
		t.Error("a type of another document or name is found")
	}
	r.find(kind("B"), "B", document)
	r.add(recentType{kind("A"), "A", []byte("2"), &apiservercel.DeclType{}})
	if len(r) != maxRecentTypes || r[0].kind.Kind != "A" || r[1].kind.Kind != "B" {
		t.Errorf("%d types are kept, the first are %v and %v", len(r), r[0].kind, r[1].kind)
	}
	oldest := r[len(r)-1].kind.Kind
	r.add(recentType{kind("E"), "E", document, &apiservercel.DeclType{}})
	if len(r) != maxRecentTypes || r.find(kind(oldest), oldest, document) != nil {
		t.Errorf("%d types are kept, %s too", len(r), oldest)
	}
}
