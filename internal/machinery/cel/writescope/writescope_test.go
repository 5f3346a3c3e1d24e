package writescope

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// TestCompile compiles expressions with the variables of each kind of scope.
func TestCompile(t *testing.T) {
	all, none := Options{Params: true, Variables: true}, Options{}
	for _, test := range []struct {
		options    Options
		authorizer bool
		source     string
		returns    []*types.Type
		err        string // a part of the error, "" for none
	}{
		{none, false, "object.a == oldObject.b", []*types.Type{types.BoolType}, ""},
		{none, false, "request.operation == 'CREATE' && request.userInfo.groups.exists(g, g == 'x')", nil, ""},
		{none, false, "request.object.a == 1", nil, "undefined field 'object'"},
		{none, false, "namespaceObject.metadata.labels['a'] == 'b'", nil, ""},
		{none, false, "namespaceObject.metadata.managedFields.size() == 0", nil, "undefined field 'managedFields'"},
		{none, false, "has(request.dryRun) && request.dryRun", []*types.Type{types.BoolType}, ""},
		{none, false, "params.a == 1", nil, "undeclared reference to 'params'"},
		{all, false, "params.a == 1", nil, ""},
		{none, false, "variables.a", nil, "undeclared reference to 'variables'"},
		{all, false, "variables.number + 1 == 2", nil, ""},
		{all, false, "variables.number + 'a' == ''", nil, "no matching overload"},
		{all, false, "variables.wrong + 'a' == ''", nil, ""}, // its type is not known
		{all, false, "variables.list.map(x, x + 1).size() == 1", nil, ""},
		{all, false, "variables.list[0] == 'a'", nil, "no matching overload"},
		{all, false, "variables.other", nil, "undefined field 'other'"},
		{none, false, "authorizer.path('/').check('get').allowed()", nil, "undeclared reference to 'authorizer'"},
		{none, true, "authorizer.path('/').check('get').allowed()", []*types.Type{types.BoolType}, ""},
		{none, true, "authorizer.requestResource.check('get').allowed()", nil, ""},
		{none, false, "1", []*types.Type{types.BoolType}, "must evaluate to bool but got int"},
		{none, false, "1", []*types.Type{types.BoolType, types.StringType}, "must evaluate to one of [bool string] but got int"},
		{none, false, "1", []*types.Type{types.StringType, types.IntType}, ""},
		{none, false, "1 +", nil, "Syntax error"},
	} {
		s := New(test.options)
		if (s.VariablesType() != nil) != test.options.Variables {
			t.Errorf("%+v: the type of the variables is %v", test.options, s.VariablesType())
		}
		if test.options.Variables {
			s.Declare("number", types.IntType)
			s.Declare("list", types.NewListType(types.IntType))
			s.Declare("wrong", nil)
		}
		program, typ, err := s.Compile(test.source, test.authorizer, cel.New, test.returns...)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %s", test.source, err, test.err)
		}
		if (program == nil) != (err != nil) || (typ == nil) != (err != nil) || IsInternal(err) {
			t.Errorf("%s: program %v, type %v, internal: %t", test.source, program, typ, IsInternal(err))
		}
	}
	if !IsInternal(&ProgramError{errors.New("x")}) || (&ProgramError{errors.New("x")}).Error() != "program x" {
		t.Error("the error of a program is not internal")
	}
}

// TestCompilePatch compiles expressions that make patches. Only the scope patches has the types for them.
func TestCompilePatch(t *testing.T) {
	s := New(Options{})
	for _, test := range []struct {
		source  string
		returns *types.Type
		ok      bool
	}{
		{"Object{spec: Object.spec{a: 1}}", ApplyConfigurationType(), true},
		{"[JSONPatch{op: 'remove', path: '/a'}]", JSONPatchesType(), true},
		{"[JSONPatch{op: 'remove', path: '/a'}]", ApplyConfigurationType(), false},
		{"authorizer.path('/').check('get').allowed() ? Object{} : Object{}", ApplyConfigurationType(), true},
	} {
		if _, _, err := s.CompilePatch(test.source, cel.New, test.returns); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.source, err)
		}
	}
	if _, _, err := s.Compile("Object{}", true, cel.New); err == nil {
		t.Error("an expression that makes no patch has the type Object")
	}
}

// TestDeclared compares the declarations of types.
func TestDeclared(t *testing.T) {
	for _, test := range []struct {
		typ  *types.Type
		want *apiservercel.DeclType
	}{
		{nil, apiservercel.DynType}, {types.AnyType, apiservercel.AnyType}, {types.BoolType, apiservercel.BoolType},
		{types.BytesType, apiservercel.BytesType}, {types.DoubleType, apiservercel.DoubleType},
		{types.DurationType, apiservercel.DurationType}, {types.IntType, apiservercel.IntType},
		{types.NullType, apiservercel.NullType}, {types.StringType, apiservercel.StringType},
		{types.TimestampType, apiservercel.TimestampType}, {types.UintType, apiservercel.UintType},
		{types.NewOpaqueType("x"), apiservercel.DynType},
	} {
		if got := declared(test.typ); got != test.want {
			t.Errorf("%v: %v, want %v", test.typ, got, test.want)
		}
	}
	if got := declared(types.NewMapType(types.StringType, types.NewListType(types.IntType))); !got.IsMap() ||
		got.KeyType != apiservercel.StringType || !got.ElemType.IsList() || got.ElemType.ElemType != apiservercel.IntType {
		t.Errorf("a map of lists: %v", got)
	}
}

// TestTyped checks expressions for an object of a known type.
func TestTyped(t *testing.T) {
	o := object("Thing", members{"size": apiservercel.IntType}, nil)
	for _, test := range []struct {
		params         *apiservercel.DeclType
		source, issues string
	}{
		{nil, "object.size == 1 && oldObject.size == 2 && variables.double > 1 && variables.wrong.anything", ""},
		{nil, "object.nope == 1", "undefined field 'nope'"},
		{nil, "variables.double == ''", "no matching overload"},
		{nil, "params.size == 1", "undeclared reference to 'params'"},
		{o, "params.size == 1", ""},
		{o, "params.nope == 1", "undefined field 'nope'"},
		{nil, "authorizer.path('/').check('get').allowed()", ""},
		{nil, "authorizer.requestResource.check('get').allowed()",
			"unexpected failed resolution of 'kubernetes.authorization.Authorizer'"},
	} {
		typed := NewTyped(o, test.params)
		typed.Declare("double", "object.size * 2")
		typed.Declare("wrong", "object.nope")
		issues, err := typed.Check(test.source)
		if err != nil || (issues == "") != (test.issues == "") || !strings.Contains(issues, test.issues) {
			t.Errorf("%s: %q %v, want %q", test.source, issues, err, test.issues)
		}
	}
}
