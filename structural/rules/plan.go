package rules

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// A planner holds what programs are made from. A program keeps the functions of its
// environment for itself, all 350 overloads of them (50 KB), so it gets an
// environment that has few other functions than it calls.
type planner struct {
	functions map[string]*decls.FunctionDecl // all there are
	plain     base                           // types and settings alone
	// costed has the libraries that bring settings of their own: what their
	// functions cost.
	costed base
}

// A base is an environment to which functions are added, but for those it has.
type base struct {
	env *cel.Env
	has map[string]bool
}

var newPlanner = sync.OnceValues(func() (*planner, error) {
	all := environments().StoredExpressionsEnv()
	p := &planner{functions: all.Functions()}
	var err error
	if p.plain, err = p.base(all, cel.OptionalTypes()); err != nil {
		return nil, err
	}
	p.costed, err = p.base(all, cel.OptionalTypes(), ext.Sets(), ext.Lists(ext.ListsVersion(3)))
	return p, err
})

// base makes one of libraries, with the types of all.
func (p *planner) base(all *cel.Env, libraries ...cel.EnvOption) (base, error) {
	env, err := cel.NewCustomEnv(append([]cel.EnvOption{
		cel.CustomTypeProvider(all.CELTypeProvider()),
		cel.CustomTypeAdapter(all.CELTypeAdapter()),
	}, libraries...)...)
	if err != nil {
		return base{}, err
	}
	b := base{has: map[string]bool{}}
	for name, f := range env.Functions() {
		whole := p.functions[name]
		b.has[name] = whole == nil || len(f.OverloadDecls()) == len(whole.OverloadDecls())
	}
	b.env, err = env.Extend(
		cel.CustomTypeProvider(fixedTypes{env.CELTypeProvider()}),
		cel.CustomTypeAdapter(fixedValues{env.CELTypeAdapter()}),
		cel.ClearMacros(),
	)
	return b, err
}

// Environments share types that nothing is added to, and copy all others.
type (
	fixedTypes  struct{ types.Provider }
	fixedValues struct{ types.Adapter }
)

// plan makes the program of a checked expression. It stops at the limit of one call
// and looks for the end of its context now and then.
func plan(checked *cel.Ast) (cel.Program, error) {
	p, err := newPlanner()
	if err != nil {
		return nil, err
	}
	env, err := p.environment(checked)
	if err != nil {
		return nil, err
	}
	return env.Program(checked,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.OptimizeRegex(library.FindRegexOptimization, library.FindAllRegexOptimization),
		cel.CostTracking(&library.CostEstimator{}),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		cel.CostLimit(celconfig.PerCallLimit),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
		cel.CustomDecorator(p.bounded),
	)
}

// environment returns one with the functions that an expression calls.
func (p *planner) environment(checked *cel.Ast) (*cel.Env, error) {
	called := map[string]bool{}
	visit := func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			called[e.AsCall().FunctionName()] = true
		}
	}
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(visit))

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
	return b.env.Extend(cel.FunctionDecls(add...))
}
