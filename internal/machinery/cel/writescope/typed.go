package writescope

import (
	"errors"

	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// Typed checks the expressions of a policy for objects and parameters whose types are known. It may not be used by
// several goroutines at the same time.
type Typed struct {
	scope     *cel.Scope
	variables *apiservercel.DeclType
}

// NewTyped returns a Typed. object is the type of object and oldObject, params the type of params; nil means that this
// variable does not exist. As in kube-apiserver's type checks there is no variable authorizer.requestResource.
func NewTyped(object, params *apiservercel.DeclType) *Typed {
	t := &Typed{variables: apiservercel.NewObjectType("kubernetes.variables", map[string]*apiservercel.DeclField{})}
	seen := []cel.Variable{
		{Name: Object, Type: object}, {Name: OldObject, Type: object}, {Name: Namespace, Type: namespaceType()},
		{Name: Request, Type: requestType()}, {Name: Variables, Type: t.variables},
		{Name: Authorizer, Type: opaque(library.AuthorizerType)},
	}
	if params != nil {
		seen = append(seen, cel.Variable{Name: Params, Type: params})
	}
	t.scope = cel.NewScope(seen...)
	return t
}

// Declare adds a variable of the policy. Its type is dynamic if its expression does not compile.
func (t *Typed) Declare(name, source string) {
	field := apiservercel.DynType
	if compiled, err := t.scope.Compile(source, cel.Stored); err == nil {
		field = declared(compiled.Type())
	}
	t.variables.Fields[name] = apiservercel.NewDeclField(name, field, true, nil, nil)
}

// Check returns what is wrong with an expression, with the texts of kube-apiserver; "" if it is correct. It fails if
// the expression could not be checked.
func (t *Typed) Check(source string) (issues string, err error) {
	_, err = t.scope.Compile(source, cel.Stored)
	var wrong *cel.CompileError
	if errors.As(err, &wrong) {
		return wrong.Issues, nil
	}
	return "", err
}
