package flowcontrol

import (
	"fmt"
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const (
	maxQueues = 10 * 1000 * 1000
	// maxHashBits is how many bits of a hash may be needed to choose a hand of queues.
	maxHashBits = 60
	// preserveZeroAnnotation had a meaning in v1beta3, in which a value of 0 shares was a default.
	preserveZeroAnnotation = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
)

func validatePriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	path := field.NewPath("spec")
	_, preserves := p.Annotations[preserveZeroAnnotation]
	errs := field.ForbiddenIf(preserves, field.NewPath("metadata", "annotations"),
		"annotation '"+preserveZeroAnnotation+"' is forbidden")
	errs = append(errs, validatePriorityLevelSpec(p.Name, &p.Spec, path)...)
	errs = append(errs, validateMandatoryLevel(p, path)...)
	return append(errs, validatePriorityLevelStatus(p)...)
}

func validatePriorityLevelStatus(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return validateConditionTypes(p.Status.Conditions, func(c *flowcontrolv1.PriorityLevelConfigurationCondition) string {
		return string(c.Type)
	})
}

// validateMandatoryLevel validates that the spec of a mandatory priority level is the fixed one.
func validateMandatoryLevel(p *flowcontrolv1.PriorityLevelConfiguration, path *field.Path) field.ErrorList {
	var fixed bool
	except := ""
	switch p.Name {
	case flowcontrolv1.PriorityLevelConfigurationNameExempt:
		fixed = p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt && p.Spec.Limited == nil
		except = " except the 'spec.exempt' field"
	case flowcontrolv1.PriorityLevelConfigurationNameCatchAll:
		fixed = equality.Semantic.DeepEqual(&p.Spec, catchAllLevel())
	default:
		return nil
	}
	if fixed {
		return nil
	}
	return field.ErrorList{field.Invalid(path, declare.Internal(p.Spec),
		fmt.Sprintf("spec of '%s'%s must equal the fixed value", p.Name, except))}
}

func validatePriorityLevelSpec(
	name string, s *flowcontrolv1.PriorityLevelConfigurationSpec, path *field.Path,
) (errs field.ErrorList) {
	at, exempt := path.Child("type"), s.Type == flowcontrolv1.PriorityLevelEnablementExempt
	errs = append(errs, field.InvalidIf(exempt != (name == flowcontrolv1.PriorityLevelConfigurationNameExempt), at,
		s.Type, "must be 'Exempt' if and only if `name` is 'exempt'")...)
	switch s.Type {
	case "":
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if e := s.Exempt; e != nil {
			errs = append(errs, validateShares(e.NominalConcurrencyShares, e.LendablePercent, path.Child("exempt"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if s.Limited != nil {
			errs = append(errs, validateLimited(s.Limited, path.Child("limited"))...)
		}
	default:
		errs = append(errs, field.NotSupported(at, s.Type, []flowcontrolv1.PriorityLevelEnablement{
			flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	return append(errs, declaredOfLevel(s, path)...)
}

// declaredOfLevel returns the errors of the rules that the API declares: which fields belong to which types.
func declaredOfLevel(s *flowcontrolv1.PriorityLevelConfigurationSpec, path *field.Path) field.ErrorList {
	limited := path.Child("limited")
	isLimited := s.Type == flowcontrolv1.PriorityLevelEnablementLimited
	errs := field.ForbiddenIf(s.Exempt != nil && s.Type != flowcontrolv1.PriorityLevelEnablementExempt, path.Child("exempt"), "")
	errs = append(errs, field.ForbiddenIf(s.Limited != nil && !isLimited, limited, "")...)
	errs = append(errs, field.RequiredIf(s.Limited == nil && isLimited, limited, "")...)
	errs = append(errs, field.NotEmpty(path.Child("type"), s.Type)...)
	if s.Limited == nil {
		return errs
	}
	r, response := &s.Limited.LimitResponse, limited.Child("limitResponse")
	queues := r.Type == flowcontrolv1.LimitResponseTypeQueue
	errs = append(errs, field.ForbiddenIf(r.Queuing != nil && !queues, response.Child("queuing"), "")...)
	errs = append(errs, field.RequiredIf(r.Queuing == nil && queues, response.Child("queuing"), "")...)
	return append(errs, field.NotEmpty(response.Child("type"), r.Type)...)
}

// validateShares validates what both types of priority levels have.
func validateShares(shares, lendable *int32, path *field.Path) field.ErrorList {
	errs := field.AtLeast(path.Child("nominalConcurrencyShares"), shares, 0, "must be a non-negative integer")
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(path.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, l.LendablePercent, path)
	errs = append(errs, field.AtLeast(path.Child("borrowingLimitPercent"), l.BorrowingLimitPercent, 0,
		"if specified, must be a non-negative integer")...)
	return append(errs, validateLimitResponse(&l.LimitResponse, path.Child("limitResponse"))...)
}

// validateLimitResponse validates what happens to a request over the limit. Missing and forbidden fields are
// reported by declaredOfLevel, so they are passed over here.
func validateLimitResponse(r *flowcontrolv1.LimitResponse, path *field.Path) field.ErrorList {
	switch {
	case r.Type == flowcontrolv1.LimitResponseTypeQueue && r.Queuing != nil:
		return validateQueuing(r.Queuing, path.Child("queuing"))
	case r.Type == "":
		return nil
	}
	return field.OneOf(path.Child("type"), r.Type, flowcontrolv1.LimitResponseTypeQueue,
		flowcontrolv1.LimitResponseTypeReject)
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, path *field.Path) (errs field.ErrorList) {
	positive := func(name string, n int32) {
		errs = append(errs, field.InvalidIf(n <= 0, path.Child(name), n, "must be positive")...)
	}
	positive("queueLengthLimit", q.QueueLengthLimit)
	positive("queues", q.Queues)
	positive("handSize", q.HandSize)
	if q.Queues > maxQueues {
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues,
			fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	at := path.Child("handSize")
	switch {
	case q.HandSize <= 0:
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(at, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case hashBits(q.Queues, q.HandSize) > maxHashBits:
		errs = append(errs, field.Invalid(at, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
				q.Queues, q.HandSize, maxHashBits)))
	}
	return errs
}

// hashBits returns how many bits it takes to choose a hand of queues in any order.
// The queues of a hand are chosen from the bits of one 64-bit hash. Four bits are left over, because the last
// choices become uneven if all bits are used. For example, 64 queues and hands of 8 need 48 bits; hands of 11
// would need 66 and are refused.
func hashBits(queues, hand int32) int {
	return int(math.Ceil(math.Log2(float64(queues)) * float64(hand)))
}
