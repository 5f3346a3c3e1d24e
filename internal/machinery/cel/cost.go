package cel

import (
	"math"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/library"
)

// callCosts are the costs of calls when a program runs. They are those of Kubernetes' library, but a call also pays for
// the text that it creates; the library only counts the text in the arguments. For example, format may read an object
// to create two characters, and replace may turn a short text into a long one.
type callCosts struct{ library.CostEstimator }

// formatFactor is the cost of each byte that format writes. Writing a byte takes several times as long as reading one.
const formatFactor = 5 * common.StringTraversalCostFactor

// CallCost implements interpreter.ActualCostEstimator.
func (c *callCosts) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := c.CostEstimator.CallCost(function, overload, args, result)
	switch function {
	case "format":
		layout, ok := args[0].(types.String)
		if !ok || len(args) < 2 {
			return cost
		}
		return add(cost, common.StringTraversalCostFactor*float64(len(layout))+
			formatFactor*float64(textSize(args[1], 0, maxText)))
	case "replace":
		from, ok := args[0].(types.String)
		made, isText := result.(types.String)
		if ok && isText && len(made) > len(from) {
			return add(cost, common.StringTraversalCostFactor*float64(len(made)-len(from)))
		}
	}
	return cost
}

// add returns the sum of a cost (nil means 0) and more.
func add(cost *uint64, more float64) *uint64 {
	sum := uint64(math.Ceil(more))
	if cost != nil {
		sum += *cost
	}
	return &sum
}
