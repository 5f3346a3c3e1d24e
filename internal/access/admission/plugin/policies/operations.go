package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/jsonpatch"
)

// applyOperations applies a JSON patch, whose operations are the value of the expression.
func applyOperations(ctx context.Context, m *mutating, names admission.Names, value ref.Val) error {
	operations, err := operationsOf(value)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.New(operations)
	if err != nil {
		return fmt.Errorf("failed to create JSON patch: %w", err)
	}
	document, err := m.o.Versions.Document(ctx, m.a, m.a.Object, names)
	if err != nil {
		return fmt.Errorf("failed to create JSON patch: %w", err)
	}
	patched, err := patch.Apply(document)
	if jsonpatch.IsTestFailed(err) {
		return nil // the object stays as it is
	}
	if err != nil {
		return fmt.Errorf("JSON Patch: %w", err)
	}
	if err := m.o.Versions.Replace(ctx, m.a, patched, names, true); err != nil {
		return kerrors.NewInternalError(err)
	}
	return nil
}

// operationsOf returns the operations that an expression has made.
func operationsOf(value ref.Val) ([]jsonpatch.Operation, error) {
	list, ok := value.(traits.Lister)
	if !ok { // the type of the expression was checked
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	out := []jsonpatch.Operation{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		element := it.Next()
		made, ok := element.(*celmutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, "+
				"got element of %T", element)
		}
		op := jsonpatch.Operation{Op: made.Op, Path: made.Path, From: made.From}
		if made.Val != nil {
			var err error
			if op.Value, err = jsonOf(made.Val); err != nil {
				return nil, err
			}
		}
		out = append(out, op)
	}
	return out, nil
}

// jsonOf returns the value of an operation as JSON.
func jsonOf(value ref.Val) (_ []byte, err error) {
	if object, ok := value.(*dynamic.ObjectVal); ok {
		if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	native, err := native(value, reflect.TypeFor[*structpb.Value]())
	var text []byte
	if err == nil {
		text, err = json.Marshal(native)
	}
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	return text, nil
}

// native converts the value of an expression to a type of Go. The library panics for some values.
func native(value ref.Val, to reflect.Type) (out any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return value.ConvertToNative(to)
}
