package crd

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Converter brings objects of one definition to a version, in one step. It may
// change and return its arguments. An error concerns all of them.
type Converter interface {
	Convert(ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error)
}

// Converters makes the converter of a definition.
type Converters func(name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (Converter, error)
