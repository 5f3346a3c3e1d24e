package cel

import (
	"strconv"
	"strings"

	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// The cost of a call is computed from the sizes of its arguments, and only after the call was made. So a
// function whose result is many times larger than its arguments has taken its memory before the cost is
// known. In a chain of calls the factors multiply: two calls of replace turn 1 KB into 1 GB. Calls of such
// functions are refused if their result would be larger than what an object can hold.
const (
	maxText     = 10 << 20
	maxElements = 3 << 20
	// maxPrecision is the number of digits that a format may ask for.
	maxPrecision = 100
)

// A bound returns why a call with these arguments is refused, "" if it is not.
type bound func(args []ref.Val) string

// bounds has the functions whose results may be larger than their arguments by more than a small factor, or whose
// time grows faster than the length of their arguments.
var bounds = map[string]bound{
	operators.Add: boundSum,
	"replace":     boundReplace,
	"join":        boundJoin,
	"format":      boundFormat,
	"lists.range": boundRange,
	"quantity":    boundQuantity,
	"isQuantity":  boundQuantity,
}

// tooLarge is the error of a call whose result is too large.
const tooLarge = "the result is larger than an object may be"

func boundSum(args []ref.Val) string {
	switch a := args[0].(type) {
	case types.String:
		if b, ok := args[1].(types.String); ok && len(a)+len(b) > maxText {
			return tooLarge
		}
	case types.Bytes:
		if b, ok := args[1].(types.Bytes); ok && len(a)+len(b) > maxText {
			return tooLarge
		}
	case traits.Lister:
		if b, ok := args[1].(traits.Lister); ok && elements(a)+elements(b) > maxElements {
			return tooLarge
		}
	}
	return ""
}

func elements(l traits.Lister) int64 {
	n, _ := l.Size().(types.Int)
	return int64(n)
}

func boundReplace(args []ref.Val) string {
	if len(args) < 3 {
		return ""
	}
	whole, ok := args[0].(types.String)
	before, isText := args[1].(types.String)
	after, alsoText := args[2].(types.String)
	if !ok || !isText || !alsoText {
		return ""
	}
	times := strings.Count(string(whole), string(before))
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			times = min(times, int(most))
		}
	}
	if len(whole)+times*(len(after)-len(before)) > maxText {
		return tooLarge
	}
	return ""
}

func boundJoin(args []ref.Val) string {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return ""
	}
	between := 0
	if len(args) > 1 {
		text, _ := args[1].(types.String)
		between = len(text)
	}
	if textSize(list, between, maxText) > maxText {
		return tooLarge
	}
	return ""
}

// textSize estimates the length of a value as text, in bytes. It counts between bytes more for the value itself
// and for each element in it, such as the separator of join. It stops counting above most.
func textSize(v ref.Val, between, most int) int {
	size := between
	switch v := v.(type) {
	case types.String:
		return size + len(v)
	case types.Bytes:
		return size + len(v)
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && size <= most; {
			key := it.Next()
			size += textSize(key, between, most-size) + textSize(v.Get(key), between, most-size)
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && size <= most; {
			size += textSize(it.Next(), between, most-size)
		}
	default:
		const number = 24
		size += number
	}
	return size
}

func boundFormat(args []ref.Val) string {
	layout, _ := args[0].(types.String)
	for _, part := range strings.Split(string(layout), ".")[1:] {
		digits := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		if n, err := strconv.Atoi(digits); digits != "" && (err != nil || n > maxPrecision) {
			return "the precision is larger than " + strconv.Itoa(maxPrecision)
		}
	}
	if len(args) > 1 && len(layout)+textSize(args[1], 0, maxText) > maxText {
		return tooLarge
	}
	return ""
}

func boundRange(args []ref.Val) string {
	if n, ok := args[0].(types.Int); ok && n > maxElements {
		return tooLarge
	}
	return ""
}

// boundQuantity refuses a text that would take long to be read as a quantity, such as 011E011110011110.
func boundQuantity(args []ref.Val) string {
	if text, ok := args[0].(types.String); ok {
		if err := scheme.CheckQuantity(string(text)); err != nil {
			return err.Error()
		}
	}
	return ""
}

// bounded is a decorator of the interpreter: it replaces the calls of functions that have a bound.
func (p *planner) bounded(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok || bounds[call.Function()] == nil {
		return node, nil
	}
	run := p.implementation(call.Function(), call.OverloadID())
	if run == nil {
		return node, nil
	}
	return &boundedCall{InterpretableCall: call, bound: bounds[call.Function()], run: run}, nil
}

// implementation returns the Go function of an overload of a function, nil if there is none.
func (p *planner) implementation(function, overload string) functions.FunctionOp {
	if function == operators.Add {
		return func(args ...ref.Val) ref.Val {
			if adder, ok := args[0].(traits.Adder); ok {
				return adder.Add(args[1])
			}
			return types.MaybeNoSuchOverloadErr(args[0])
		}
	}
	return implementationOf(p.functions[function], overload)
}

func implementationOf(f *decls.FunctionDecl, overload string) functions.FunctionOp {
	if f == nil {
		return nil
	}
	bindings, err := f.Bindings()
	if err != nil {
		return nil
	}
	for _, name := range []string{overload, f.Name()} {
		for _, b := range bindings {
			if b.Operator != name || name == "" {
				continue
			}
			return func(args ...ref.Val) ref.Val {
				switch {
				case len(args) == 1 && b.Unary != nil:
					return b.Unary(args[0])
				case len(args) == 2 && b.Binary != nil:
					return b.Binary(args[0], args[1])
				case b.Function != nil:
					return b.Function(args...)
				}
				return types.MaybeNoSuchOverloadErr(args[0])
			}
		}
	}
	return nil
}

// A boundedCall is a call that is made only if its bound does not refuse it.
type boundedCall struct {
	interpreter.InterpretableCall
	bound bound
	run   functions.FunctionOp
}

// Exec implements interpreter.InterpretableV2. The arguments are evaluated once.
func (c *boundedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := c.Args()
	values := make([]ref.Val, len(args))
	for i, arg := range args {
		if values[i] = arg.Exec(frame); types.IsUnknownOrError(values[i]) {
			return values[i]
		}
	}
	if why := c.bound(values); why != "" {
		return types.NewErrWithNodeID(c.ID(), "%s: %s", c.Function(), why)
	}
	return types.LabelErrNode(c.ID(), c.run(values...))
}
