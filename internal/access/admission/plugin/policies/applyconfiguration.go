package policies

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

// applyConfiguration merges the configuration that an expression has made with the object of the write, as server-side
// apply merges them, but without owners of fields.
func applyConfiguration(ctx context.Context, m *mutating, names admission.Names, made ref.Val) error {
	types, err := m.o.Versions.Types(ctx, names)
	if err != nil {
		return kerrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. There can be a delay between when "+
			"CustomResourceDefinitions are created and when they are available.", names.Kind))
	}
	configuration, err := configurationOf(made)
	if err != nil {
		return err
	}
	w, err := m.write(ctx, names)
	if err != nil {
		return kerrors.NewInternalError(err)
	}
	object, err := w.Object()
	if err != nil {
		return kerrors.NewInternalError(err)
	}
	configuration.SetGroupVersionKind(names.Kind)
	merged, err := merge(types, object, configuration)
	if err != nil {
		return fmt.Errorf("error applying patch: %w", err)
	}
	return m.o.Versions.ReplaceTree(ctx, m.a, merged, names)
}

// configurationOf returns the configuration that an expression has made.
func configurationOf(made ref.Val) (*unstructured.Unstructured, error) {
	object, ok := made.(*dynamic.ObjectVal)
	if !ok { // the type of the expression was checked
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", made.Type())
	}
	if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	tree, err := native(object, reflect.TypeFor[map[string]any]())
	if err != nil {
		return nil, fmt.Errorf("invalid return type: %T", made)
	}
	return &unstructured.Unstructured{Object: tree.(map[string]any)}, nil
}

// merge returns an object with the changes of a configuration. It does not change the object, but the result shares
// memory with it.
func merge(
	types managedfields.TypeConverter, object map[string]any, configuration *unstructured.Unstructured,
) (map[string]any, error) {
	changes, err := types.ObjectToTyped(configuration)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if places := atomics(changes); len(places) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %v",
			strings.Join(places, ", "))
	}
	live, err := types.ObjectToTyped(&unstructured.Unstructured{Object: object}, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := live.Merge(changes)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	tree, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, errors.New("failed to convert typed object to object")
	}
	return tree, nil
}

// atomics returns the paths in a configuration at which a list or map would be replaced as a whole. Such a
// configuration is refused, because a policy that sets one member probably does not want to remove the others.
func atomics(configuration *typed.TypedValue) []string {
	s := atomicSearch{schema: configuration.Schema()}
	s.visit("", configuration.TypeRef(), configuration.AsValue())
	return s.found
}

type atomicSearch struct {
	schema *schema.Schema
	found  []string
}

// visit searches the value v of a type. path is where v is.
func (s *atomicSearch) visit(path string, of schema.TypeRef, v value.Value) {
	atom, ok := s.schema.Resolve(of)
	if !ok {
		return
	}
	if atom.Map != nil && v.IsMap() {
		if atom.Map.ElementRelationship == schema.Atomic {
			s.found = append(s.found, path)
		}
		members := v.AsMap()
		for _, field := range atom.Map.Fields { // members of maps without fields are not searched, as in kube-apiserver
			if member, ok := members.Get(field.Name); ok {
				s.visit(path+"."+field.Name, field.Type, member)
			}
		}
	}
	if atom.List != nil && v.IsList() {
		if atom.List.ElementRelationship == schema.Atomic {
			s.found = append(s.found, path)
		}
		elements := v.AsList()
		for i := range elements.Length() {
			s.visit(path+"["+strconv.Itoa(i)+"]", atom.List.ElementType, elements.At(i))
		}
	}
}
