package celvars

import (
	"reflect"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRequestIsNoJSON checks the errors of parts of request that a JSONPatch would write to an object. The messages are those of
// kube-apiserver 1.37.
func TestRequestIsNoJSON(t *testing.T) {
	request, err := requestValue(&admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: "somebody", Groups: []string{"a", "b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	of := func(value any, fields ...string) ref.Val {
		v := types.DefaultTypeAdapter.NativeToValue(value)
		for _, f := range fields {
			v = v.(traits.Indexer).Get(types.String(f))
		}
		return v
	}
	for _, c := range []struct {
		value ref.Val
		want  string
	}{
		{of(request), "type conversion error from struct type v1.AdmissionRequest to *structpb.Value"},
		{of(request, "kind"), "type conversion error from struct type v1.GroupVersionKind to *structpb.Value"},
		{of(request, "userInfo"), "type conversion error from struct type v1.UserInfo to *structpb.Value"},
		{of(request, "userInfo", "groups"), "type conversion error from 'list(dyn)' to '*structpb.Value'"},
		{of(map[string]any{"a": []any{of(request, "userInfo")}}), "type conversion error from struct type v1.UserInfo to *structpb.Value"},
		{of(request, "userInfo", "username"), ""},
		{of(request, "operation"), ""},
	} {
		text := ""
		if _, err := c.value.ConvertToNative(reflect.TypeFor[*structpb.Value]()); err != nil {
			text = err.Error()
		}
		if text != c.want {
			t.Errorf("%v: %q, want %q", c.value.Type(), text, c.want)
		}
	}
	if size := of(request, "userInfo", "groups").(traits.Sizer).Size(); size != types.Int(2) {
		t.Errorf("%v groups", size)
	}
}
