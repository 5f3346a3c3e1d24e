package authz

import "context"

// Constraint limits what the sender of a request may do in the name of the user whom the sender impersonates
// (KEP-5284). Allows decides like an Authorizer; the user in its Attributes is the impersonated one.
type Constraint struct {
	User   string // the name of the impersonated user
	Allows func(ctx context.Context, a Attributes) (Decision, string, error)
	// Lifted reports whether the sender may also impersonate the user without a constraint, by the verb impersonate.
	Lifted func(ctx context.Context) bool
}

type constraintKey struct{}

// WithConstraint returns a context of a request that is sent under a constraint.
func WithConstraint(ctx context.Context, c *Constraint) context.Context {
	return context.WithValue(ctx, constraintKey{}, c)
}

// IsConstrained reports whether a request is sent under a constraint that is not lifted.
func IsConstrained(ctx context.Context) bool {
	c, _ := ctx.Value(constraintKey{}).(*Constraint)
	return c != nil && !c.Lifted(ctx)
}

// Further asks whether the user may do something that a request needs in addition to its own verb, which the
// filters have authorized: readhistory, escalate, bind, sign, or create for an update that creates. If the request
// is sent under a constraint, the constraint has to allow it, too. Otherwise the permission to impersonate a user
// for reads would include everything that a read may need. The constraint does not count if the requester may also
// impersonate the user without one: the filter chose the constrained mode only because it tries that mode first.
func Further(ctx context.Context, z Authorizer, a Attributes) (Decision, string, error) {
	decision, reason, err := z.Authorize(ctx, a)
	c, _ := ctx.Value(constraintKey{}).(*Constraint)
	if decision != Allow || c == nil || a.User == nil || a.User.Name != c.User {
		return decision, reason, err
	}
	if decision, refusal, err := c.Allows(ctx, a); decision != Allow && !c.Lifted(ctx) {
		return NoOpinion, refusal, err
	}
	return decision, reason, err
}
