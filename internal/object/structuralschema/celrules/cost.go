package celrules

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// expressionLimit and totalLimit are the highest estimated costs of one expression and of all expressions of a
// schema, in cost units of the expression language.
const (
	expressionLimit = 10_000_000
	totalLimit      = 100_000_000

	// If a schema is over totalLimit, errors name its expensiveNamed most expensive expressions whose cost is at
	// least expensiveFrom.
	expensiveNamed = 4
	expensiveFrom  = totalLimit / 100
)

// times multiplies costs. It returns math.MaxUint64 on overflow.
func times(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// cardinality is how many values of a node one object can contain at most, by the limits of the lists and maps
// around it. It is nil if one of them has no limit.
type cardinality *uint64

// below returns the cardinality of the children of s.
func below(c cardinality, s *structuralschema.Schema) cardinality {
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

// often returns the number of values for c. Without a limit it is the number of values of minimal size, with a
// comma each, that fit into a request.
func often(c cardinality, typ *apiservercel.DeclType) uint64 {
	if c != nil {
		return *c
	}
	return uint64(celconfig.MaxRequestSizeBytes / (typ.MinSerializedSize + 1))
}

// totalCost is the cost of all expressions of a schema.
type totalCost struct {
	total     uint64
	expensive []expensiveExpression // most expensive first
}

type expensiveExpression struct {
	path *field.Path
	cost uint64
}

func (c *totalCost) add(path *field.Path, cost uint64) {
	sum, carry := bits.Add64(c.total, cost, 0)
	if carry != 0 {
		sum = math.MaxUint64
	}
	c.total = sum
	if cost < expensiveFrom {
		return
	}
	c.expensive = append(c.expensive, expensiveExpression{path, cost})
	slices.SortStableFunc(c.expensive, func(x, y expensiveExpression) int {
		switch {
		case x.cost > y.cost:
			return -1
		case x.cost < y.cost:
			return 1
		}
		return 0
	})
	c.expensive = c.expensive[:min(len(c.expensive), expensiveNamed)]
}

// errors returns the errors of a schema that is over totalLimit. path is the path of the schema.
func (c *totalCost) errors(path *field.Path) field.ErrorList {
	if c.total <= totalLimit {
		return nil
	}
	var errs field.ErrorList
	for _, e := range c.expensive {
		errs = append(
			errs,
			field.Forbidden(e.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"),
		)
	}
	return append(
		errs,
		field.Forbidden(path, overLimit("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", c.total, totalLimit)),
	)
}

// overLimit returns the message for a cost over its limit, with the factor between them.
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
