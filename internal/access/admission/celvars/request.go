package celvars

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// goStruct is a map that stands for a struct of kube-apiserver. Expressions use it as a map, but it cannot become a value of JSON, for
// example in a JSONPatch.
type goStruct struct {
	traits.Mapper
	name string // of the type of Go
}

// ConvertToNative fails with the error of kube-apiserver.
func (s goStruct) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion error from struct type %s to %v", s.name, to)
}

// goList is a list of kube-apiserver's own, which cannot become a value of JSON either.
type goList struct{ traits.Lister }

// ConvertToNative fails with the error of kube-apiserver.
func (l goList) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion error from '%v' to '%v'", l.Type(), to)
}

func newStruct(fields map[string]any, name string) goStruct {
	return goStruct{types.NewStringInterfaceMap(types.DefaultTypeAdapter, fields), name}
}

// requestValue returns the value of the variable request.
func requestValue(r *admissionv1.AdmissionRequest) (any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		return nil, err
	}
	for field, name := range map[string]string{
		"kind": "v1.GroupVersionKind", "requestKind": "v1.GroupVersionKind",
		"resource": "v1.GroupVersionResource", "requestResource": "v1.GroupVersionResource", "userInfo": "v1.UserInfo",
	} {
		inner, ok := fields[field].(map[string]any)
		if !ok {
			continue
		}
		if groups, ok := inner["groups"].([]any); ok {
			inner["groups"] = goList{types.NewDynamicList(types.DefaultTypeAdapter, groups)}
		}
		fields[field] = newStruct(inner, name)
	}
	return newStruct(fields, "v1.AdmissionRequest"), nil
}
