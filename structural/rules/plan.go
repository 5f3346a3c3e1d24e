package rules

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// planner holds what programs are made from. A program keeps the functions of its
// environment for itself, all 350 overloads of them (50 KB), so it gets an
// environment that has no other functions than it calls.
type planner struct {
	env       *cel.Env // types, settings, and few functions
	functions map[string]*decls.FunctionDecl
}

var newPlanner = sync.OnceValues(func() (*planner, error) {
	all := environments().StoredExpressionsEnv()
	env, err := cel.NewCustomEnv(
		cel.CustomTypeProvider(all.CELTypeProvider()),
		cel.CustomTypeAdapter(all.CELTypeAdapter()),
		cel.OptionalTypes(),
	)
	return &planner{env: env, functions: all.Functions()}, err
})

// plan makes the program of a checked expression. It stops at the limit of one call
// and looks for the end of its context now and then.
func plan(checked *cel.Ast) (cel.Program, error) {
	p, err := newPlanner()
	if err != nil {
		return nil, err
	}
	env, err := p.env.Extend(cel.FunctionDecls(p.called(checked)...))
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
	)
}

// called returns the functions that an expression calls, but for those that every
// environment here has.
func (p *planner) called(checked *cel.Ast) []*decls.FunctionDecl {
	seen := map[string]bool{}
	var out []*decls.FunctionDecl
	visit := func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		name := e.AsCall().FunctionName()
		f, ok := p.functions[name]
		if ok && !seen[name] && !p.env.HasFunction(name) {
			out = append(out, f)
		}
		seen[name] = true
	}
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(visit))
	return out
}
