package rules

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/structural"
)

// What the expressions of a definition may cost at most, in the language's units, by
// what their schema allows to be written.
const (
	expressionLimit = 10_000_000
	totalLimit      = 100_000_000

	// Of the most expensive expressions of a definition over its limit so many are
	// named, if they take that part of it.
	expensiveNamed = 4
	expensiveFrom  = totalLimit / 100
)

// times multiplies costs; what does not fit is the largest cost.
func times(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// A cardinality is how often the value of a node can be there in one object, as the
// limits of the lists and maps around it say: nil if one of them has none.
type cardinality *uint64

// below returns the cardinality of the nodes below s.
func below(c cardinality, s *structural.Schema) cardinality {
	var limit *int64
	switch {
	case s.Type == "array":
		if s.Values != nil {
			limit = s.Values.MaxItems
		}
	case s.Type == "object" && (s.AdditionalProperties != nil || s.AnyProperties || s.NoProperties):
		if s.Values != nil {
			limit = s.Values.MaxProperties
		}
	default:
		return c
	}
	if c == nil || limit == nil {
		return nil
	}
	n := times(*c, uint64(max(*limit, 0)))
	return &n
}

// often returns the number that c stands for, for values of a type: without a limit it
// is as many of the smallest as fit into a request, with a comma each.
func often(c cardinality, typ *apiservercel.DeclType) uint64 {
	if c != nil {
		return *c
	}
	return uint64(celconfig.MaxRequestSizeBytes / (typ.MinSerializedSize + 1))
}

// A bill is what all expressions of a definition cost together.
type bill struct {
	total     uint64
	expensive []item // most expensive first
}

type item struct {
	path *field.Path
	cost uint64
}

func (b *bill) add(path *field.Path, cost uint64) {
	sum, carry := bits.Add64(b.total, cost, 0)
	if carry != 0 {
		sum = math.MaxUint64
	}
	b.total = sum
	if cost < expensiveFrom {
		return
	}
	b.expensive = append(b.expensive, item{path, cost})
	slices.SortStableFunc(b.expensive, func(x, y item) int {
		switch {
		case x.cost > y.cost:
			return -1
		case x.cost < y.cost:
			return 1
		}
		return 0
	})
	b.expensive = b.expensive[:min(len(b.expensive), expensiveNamed)]
}

// errors says, at path, that the definition is too expensive, if it is.
func (b *bill) errors(path *field.Path) field.ErrorList {
	if b.total <= totalLimit {
		return nil
	}
	var errs field.ErrorList
	for _, e := range b.expensive {
		errs = append(errs, field.Forbidden(e.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	return append(errs, field.Forbidden(path, overLimit("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", b.total, totalLimit)))
}

// overLimit says by how much a cost is over its limit, as far as that means anything.
func overLimit(what string, cost, limit uint64) string {
	factor := float64(cost) / float64(limit)
	by := fmt.Sprintf("%.1fx", factor)
	switch {
	case factor > 100:
		by = "more than 100x"
	case factor < 1.5:
		by = fmt.Sprintf("%fx", factor)
	}
	return what + " exceeds budget by factor of " + by +
		" (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
}
