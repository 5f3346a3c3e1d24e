package cel

import (
	"fmt"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// A planner makes the environments that programs are made in. A program keeps a table of
// its own of the functions of its environment, all 350 overloads of them (50 KB). It
// therefore gets an environment that has few other functions than it calls.
//
// The types of a scope's variables are not in that environment: they are needed to check
// an expression, not to evaluate it. Program therefore fails for an expression that creates
// an object of such a type. (kube-apiserver makes a program, but each evaluation fails.) The
// types of patches are in the environment, because expressions create values of these types.
type planner struct {
	functions map[string]*decls.FunctionDecl // all functions, by name
	plain     base                           // types and settings alone
	// costed also has the libraries for sets and lists. They have to be added as a whole, because
	// they set the costs of their functions in addition to declaring the functions.
	costed base
}

// A base is an environment, and the names of the functions that need not be added to it.
type base struct {
	env *celgo.Env
	has map[string]bool
}

// The planners are made when the first program is made. newPatchPlanner returns the planner for expressions that
// make patches.
var (
	newPlanner      = sync.OnceValues(func() (*planner, error) { return makePlanner() })
	newPatchPlanner = sync.OnceValues(func() (*planner, error) { return makePlanner(patchOptions()...) })
)

// makePlanner returns a planner whose environments have the given options in addition to their libraries.
func makePlanner(opts ...celgo.EnvOption) (*planner, error) {
	all := environments().StoredExpressionsEnv()
	extended, err := all.Extend(opts...)
	if err != nil {
		return nil, err
	}
	p := &planner{functions: extended.Functions()}
	if p.plain, err = p.base(all, opts, celgo.OptionalTypes()); err != nil {
		return nil, err
	}
	p.costed, err = p.base(all, opts, celgo.OptionalTypes(), ext.Sets(), ext.Lists(ext.ListsVersion(3)))
	return p, err
}

// base returns a base with the given libraries and options. Its types are those of the environment all.
func (p *planner) base(all *celgo.Env, opts []celgo.EnvOption, libraries ...celgo.EnvOption) (base, error) {
	env, err := celgo.NewCustomEnv(append([]celgo.EnvOption{
		celgo.CustomTypeProvider(all.CELTypeProvider()),
		celgo.CustomTypeAdapter(all.CELTypeAdapter()),
	}, libraries...)...)
	if err != nil {
		return base{}, err
	}
	b := base{has: map[string]bool{}}
	b.env, err = env.Extend(append([]celgo.EnvOption{
		celgo.CustomTypeProvider(fixedTypes{env.CELTypeProvider()}),
		celgo.CustomTypeAdapter(fixedValues{env.CELTypeAdapter()}),
		celgo.ClearMacros(),
	}, opts...)...)
	if err != nil {
		return base{}, err
	}
	for name, f := range b.env.Functions() {
		whole := p.functions[name]
		b.has[name] = whole == nil || len(f.OverloadDecls()) == len(whole.OverloadDecls())
	}
	return b, err
}

// An environment that is extended copies its types and values if it knows their Go types. These wrappers hide the Go
// types, so that types and values are shared.
type (
	fixedTypes  struct{ types.Provider }
	fixedValues struct{ types.Adapter }
)

// Program returns the program of the expression. An evaluation ends when it exceeds the cost limit of one call, and
// checks regularly whether its context has ended. An error begins with "instantiation failed"; the caller adds a prefix
// as in kube-apiserver.
func (e *Expression) Program() (*Program, error) {
	program, err := e.plan()
	if err != nil {
		return nil, fmt.Errorf("instantiation failed: %w", err)
	}
	return &Program{program}, nil
}

func (e *Expression) plan() (celgo.Program, error) {
	get := newPlanner
	if e.patches {
		get = newPatchPlanner
	}
	p, err := get()
	if err != nil {
		return nil, err
	}
	env, err := p.environment(e)
	if err != nil {
		return nil, err
	}
	return env.Program(e.ast,
		celgo.EvalOptions(celgo.OptOptimize, celgo.OptTrackCost),
		celgo.OptimizeRegex(library.FindRegexOptimization, library.FindAllRegexOptimization),
		celgo.CostTracking(&callCosts{}),
		celgo.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		celgo.CostLimit(celconfig.PerCallLimit),
		celgo.InterruptCheckFrequency(celconfig.CheckFrequency),
		celgo.CustomDecoratorV2(p.bounded),
	)
}

// environment returns an environment that has what an expression needs to be evaluated.
func (p *planner) environment(e *Expression) (*celgo.Env, error) {
	called := map[string]bool{}
	visit := func(x ast.Expr) {
		if x.Kind() == ast.CallKind {
			called[x.AsCall().FunctionName()] = true
		}
	}
	ast.PreOrderVisit(e.ast.NativeRep().Expr(), ast.NewExprVisitor(visit))

	b := p.plain
	for name := range called {
		if p.costed.has[name] && !p.plain.has[name] {
			b = p.costed
		}
	}
	var add []*decls.FunctionDecl
	for name := range called {
		if f := p.functions[name]; f != nil && !b.has[name] {
			add = append(add, f)
		}
	}
	return b.env.Extend(celgo.FunctionDecls(add...))
}
