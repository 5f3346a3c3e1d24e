package dra

import (
	"fmt"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	resourcev1 "k8s.io/api/resource/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// maxAttributes is how many attributes and capacities a device may have together.
const maxAttributes = 32

// selectorScope returns the scope of the expressions that select devices. They see the variable device, whose
// attributes and capacity are maps by domain, of maps by identifier.
func selectorScope() *cel.Scope {
	byDomain := func(value *apiservercel.DeclType) *apiservercel.DeclType {
		inner := apiservercel.NewMapType(apiservercel.StringType, value, maxAttributes)
		return apiservercel.NewMapType(apiservercel.StringType, inner, maxAttributes)
	}
	fields := map[string]*apiservercel.DeclField{}
	for name, typ := range map[string]*apiservercel.DeclType{
		"driver":                   apiservercel.StringType,
		"attributes":               byDomain(apiservercel.AnyType),
		"capacity":                 byDomain(apiservercel.QuantityDeclType),
		"allowMultipleAllocations": apiservercel.BoolType,
	} {
		fields[name] = apiservercel.NewDeclField(name, typ, true, nil, nil)
	}
	return cel.NewScope(cel.Variable{Name: "device", Type: apiservercel.NewObjectType("kubernetes.DRADevice", fields)})
}

// selectors validates the selectors of one object. Their expressions share a scope, which is made for the first one.
type selectors struct {
	origin cel.Origin
	scope  *cel.Scope
}

func (s *selectors) validate(list []resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
	errs := field.MaxItems(path, len(list), resourcev1.DeviceSelectorsMaxSize)
	for i := range list {
		at := path.Index(i).Child("cel")
		if list[i].CEL == nil {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		errs = append(errs, s.validateExpression(list[i].CEL.Expression, at.Child("expression"))...)
	}
	return errs
}

func (s *selectors) validateExpression(source string, path *field.Path) field.ErrorList {
	if len(source) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	if s.scope == nil {
		s.scope = selectorScope()
	}
	expression, err := s.scope.Compile(source, s.origin)
	if err != nil {
		return field.ErrorList{field.Invalid(path, source, err.Error())}
	}
	if t := expression.Type(); t != types.BoolType && t != types.AnyType {
		return field.ErrorList{field.Invalid(path, source, fmt.Sprintf("must evaluate to bool or the unknown type, not %s", t))}
	}
	cost, err := expression.MaxCost(deviceSizes{})
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	return field.ForbiddenIf(cost > resourcev1.CELSelectorExpressionMaxCost, path, "too complex, exceeds cost limit")
}

// deviceSizes estimates how large the parts of a device can be.
type deviceSizes struct{}

// EstimateSize returns the most entries of a map of the device, and the greatest length of a text.
func (deviceSizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if path := node.Path(); len(path) == 0 || path[0] != "device" {
		return nil
	}
	if node.Type().Kind() == types.MapKind {
		return &checker.SizeEstimate{Max: maxAttributes}
	}
	return &checker.SizeEstimate{Max: resourcev1.DeviceAttributeMaxValueLength}
}

// EstimateCallCost leaves the costs of calls to the library.
func (deviceSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
