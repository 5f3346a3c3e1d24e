package dra

import (
	"fmt"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	resourcev1 "k8s.io/api/resource/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// maxAttributes is how many attributes and capacities a device may have together.
// CEL uses it as the size of the maps in the estimate of the cost.
const maxAttributes = resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice

// expressions validates the expressions of one object: selectors of devices, and derived attributes. They share a scope, which
// is made for the first one. Expressions that are stored were valid when they were written; a nil *expressions accepts them.
type expressions struct {
	sharing bool // the gate DRAConsumableCapacity
	lists   bool // the gate DRAListTypeAttributes

	scope  *cel.Scope
	device *apiservercel.DeclType
	// attribute is the type of the value of an attribute.
	attribute *apiservercel.DeclType
	// derivedCost is the sum of the costs of the derived attributes.
	derivedCost uint64
}

func newExpressions(gates features.Gates) *expressions {
	return &expressions{
		sharing: gates.Enabled(features.DRAConsumableCapacity), lists: gates.Enabled(features.DRAListTypeAttributes),
	}
}

// sized returns a type whose values have at most a number of bytes or elements.
func sized(t *apiservercel.DeclType, most int64) *apiservercel.DeclType {
	out := *t
	out.MaxElements = most
	return &out
}

// makeScope makes the scope of the expressions. They see the variable device, whose attributes and capacity are maps by
// domain, of maps by identifier.
func (e *expressions) makeScope() {
	e.attribute = sized(apiservercel.AnyType, resourcev1.DeviceAttributeMaxValueLength)
	var functions []celgo.EnvOption
	if e.lists {
		// Only values of the type dyn can be iterated. An attribute has one text or many values.
		e.attribute = sized(apiservercel.DynType,
			max(resourcev1.DeviceAttributeMaxValueLength, resourcev1.ResourceSliceMaxAttributeValuesPerDevice))
		functions = append(functions, library.IncludesOption())
	}
	domain := sized(apiservercel.StringType, resourcev1.DeviceMaxDomainLength)
	identifier := sized(apiservercel.StringType, resourcev1.DeviceMaxIDLength)
	byDomain := func(value *apiservercel.DeclType) *apiservercel.DeclType {
		return apiservercel.NewMapType(domain, apiservercel.NewMapType(identifier, value, maxAttributes), maxAttributes)
	}
	of := map[string]*apiservercel.DeclType{
		"driver":     sized(apiservercel.StringType, resourcev1.DriverNameMaxLength),
		"attributes": byDomain(e.attribute),
		"capacity":   byDomain(apiservercel.QuantityDeclType),
	}
	if e.sharing {
		of["allowMultipleAllocations"] = sized(apiservercel.BoolType, 1)
	}
	fields := make(map[string]*apiservercel.DeclField, len(of))
	for name, typ := range of {
		fields[name] = apiservercel.NewDeclField(name, typ, true, nil, nil)
	}
	e.device = apiservercel.NewObjectType("kubernetes.DRADevice", fields)
	e.scope = cel.NewScope(cel.Variable{Name: "device", Type: e.device}).
		With(append(functions, ext.Bindings(ext.BindingsVersion(0)))...)
}

// validateSelectors validates expressions that select devices.
func (e *expressions) validateSelectors(list []resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
	return validateItems(list, resourcev1.DeviceSelectorsMaxSize, path,
		func(s *resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
			if at = at.Child("cel"); s.CEL == nil {
				return field.ErrorList{field.Required(at, "")}
			}
			_, errs := e.validate(s.CEL.Expression, e.selectorType, at.Child("expression"))
			return errs
		})
}

// validateDerived validates the expression of a derived attribute, and counts its cost.
func (e *expressions) validateDerived(source string, path *field.Path) field.ErrorList {
	cost, errs := e.validate(source, e.derivedType, path)
	if e != nil {
		e.derivedCost += cost
	}
	return errs
}

// derivedTooComplex reports whether the derived attributes of the object cost too much together.
// The limit for all of them is as high as that of one selector.
func (e *expressions) derivedTooComplex() bool {
	return e != nil && e.derivedCost > resourcev1.DeviceClaimDerivedAttributeCELMaxCost
}

// selectorType returns why the value of a selector must not have a type.
// The value of an attribute is allowed, because only the scheduler knows whether it is a bool.
func (e *expressions) selectorType(t *types.Type) string {
	if t.IsExactType(types.BoolType) || t.IsExactType(e.attribute.CelType()) {
		return ""
	}
	return fmt.Sprintf("must evaluate to bool or the unknown type, not %s", t)
}

// derivedType returns why the value of a derived attribute must not have a type.
func (e *expressions) derivedType(t *types.Type) string {
	element, lists := t, ""
	if e.lists {
		lists = " or a list of these scalars"
		if t.TypeName() == "list" && len(t.Parameters()) == 1 {
			element = t.Parameters()[0]
		}
	}
	for _, allowed := range []*types.Type{
		types.BoolType, types.IntType, types.StringType, types.AnyType, types.DynType, apiservercel.SemverType,
	} {
		if element.IsExactType(allowed) {
			return ""
		}
	}
	return fmt.Sprintf("must evaluate to a primitive scalar (string, integer, boolean, semver)%s, not %s", lists, t)
}

// validate validates an expression and returns its highest possible cost. wrong returns why a type is not allowed.
func (e *expressions) validate(source string, wrong func(*types.Type) string, path *field.Path) (uint64, field.ErrorList) {
	if e == nil {
		return 0, nil
	}
	// The limit is 10 KiB. A longer expression is not compiled.
	if len(source) > resourcev1.CELSelectorExpressionMaxLength {
		return 0, field.ErrorList{field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	if e.scope == nil {
		e.makeScope()
	}
	expression, err := e.scope.Compile(source, cel.New)
	if err != nil {
		return 0, field.ErrorList{field.Invalid(path, source, err.Error())}
	}
	if why := wrong(expression.Type()); why != "" {
		return 0, field.ErrorList{field.Invalid(path, source, why)}
	}
	cost, err := expression.MaxCost(deviceSizes{e})
	if err != nil {
		return 0, field.ErrorList{field.InternalError(path, err)}
	}
	// The limit is about 0.1 s for each evaluation. The scheduler evaluates a selector for each device.
	return cost, field.ForbiddenIf(cost > resourcev1.CELSelectorExpressionMaxCost, path, "too complex, exceeds cost limit")
}

// deviceSizes estimates how large the parts of a device can be.
// Without these sizes, CEL assumes the largest possible maps and texts, and nearly every expression with a loop
// would be too complex.
type deviceSizes struct{ *expressions }

// EstimateSize returns the most entries of a map of the device, and the greatest length of a text.
func (s deviceSizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	if len(path) == 0 || path[0] != "device" {
		return nil
	}
	t := s.device
	for _, name := range path[1:] {
		if t = s.child(t, name); t == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Max: uint64(t.MaxElements)}
}

// child returns the type of a part of a value of type t, nil if it is not known.
func (s deviceSizes) child(t *apiservercel.DeclType, name string) *apiservercel.DeclType {
	switch name {
	case "@items", "@values":
		return t.ElemType
	case "@keys":
		return t.KeyType
	}
	if f, ok := t.Fields[name]; ok {
		return f.Type
	}
	if t.ElemType == s.attribute {
		return s.attribute // an attribute that is selected by its name
	}
	return nil
}

// EstimateCallCost leaves the costs of calls to the library.
func (deviceSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
