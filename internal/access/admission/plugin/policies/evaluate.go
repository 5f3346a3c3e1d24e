package policies

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
)

// decision is the result of one validation.
type decision struct {
	// denied means that the write is refused. failed means that the expression could not be evaluated.
	denied, failed bool
	message        string
	reason         metav1.StatusReason
	took           time.Duration
}

// annotation is the result of one audit annotation.
type annotation struct {
	key, value string // an empty value is not recorded
	denied     string // why the write is refused, "" if it is not
	took       time.Duration
}

// verdict is the result of a policy with one parameter.
type verdict struct {
	decisions   []decision
	annotations []annotation
}

// failure returns the verdict of a policy whose evaluation has failed as a whole, for example because of its cost.
func (p *policy) failure(err error) verdict {
	return verdict{decisions: []decision{{denied: !p.ignore, failed: true, message: err.Error()}}}
}

// matches reports whether all match conditions of a policy are true. namespaceObject is null in them.
func (v *view) matches(ctx context.Context, p *policy, w *celvars.Write, in celvars.Inputs) (bool, error) {
	conditions := p.compiled().conditions
	if len(conditions) == 0 {
		return true, nil
	}
	in.Namespace = nil
	r := conditions.Evaluate(ctx, w.Values(in))
	// kube-apiserver has the pass "validate" for both kinds of policies, and counts no exclusions.
	v.o.Metrics.MatchConditions("policy", p.name, "validate", v.a.Operation.String(), r.Failed, r.Match, false, r.Took)
	return r.Match, r.Err
}

// evaluate evaluates a ValidatingAdmissionPolicy for a write with one parameter.
func (p *policy) evaluate(ctx context.Context, w *celvars.Write, in celvars.Inputs) verdict {
	e := p.compiled()
	budget := celvars.Budget
	results, err := celvars.EvaluateAll(ctx, e.validations, w.Values(in), &budget)
	if err != nil {
		return p.failure(err)
	}
	unauthorized := in // in messages and annotations the variable authorizer does not exist
	unauthorized.Authorizer = nil
	messages, messageErr := celvars.EvaluateAll(ctx, e.messages, w.Values(unauthorized), &budget)
	out := verdict{decisions: make([]decision, len(results))}
	for i, r := range results {
		d := &out.decisions[i]
		d.took = r.Took
		switch {
		case r.Err != nil:
			d.denied, d.failed, d.message = !p.ignore, true, r.Err.Error()
		case messageErr != nil:
			d.denied, d.failed, d.message = !p.ignore, true, fmt.Sprintf("failed messageExpression: %s", messageErr)
		case r.Value != types.True:
			d.denied, d.reason = true, reasonOf(&p.validating.Validations[i])
			d.message = messageOf(&p.validating.Validations[i], messages[i])
		}
	}
	if len(e.annotations) == 0 {
		return out
	}
	budget = celvars.Budget
	values, err := celvars.EvaluateAll(ctx, e.annotations, w.Values(unauthorized), &budget)
	if err != nil {
		return p.failure(err)
	}
	for i, r := range values {
		out.annotations = append(out.annotations, p.annotation(&p.validating.AuditAnnotations[i], r))
	}
	return out
}

// messageOf returns the message of a validation that is false: the result of messageExpression if that is one line of
// text, message otherwise, and the expression if both are empty.
func messageOf(v *admissionregistrationv1.Validation, r celvars.Result) string {
	if r.Err == nil && r.Value != nil {
		text, _ := r.Value.Value().(string)
		text = strings.TrimSpace(text)
		if text != "" && len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
			return text
		}
	}
	if v.Message != "" {
		if text := strings.TrimSpace(v.Message); text != "" {
			return text
		}
	}
	return "failed expression: " + strings.TrimSpace(v.Expression)
}

// annotation returns the value of an audit annotation.
func (p *policy) annotation(a *admissionregistrationv1.AuditAnnotation, r celvars.Result) annotation {
	out := annotation{key: a.Key, took: r.Took}
	switch {
	case r.Err != nil && !p.ignore:
		out.denied = r.Err.Error()
	case r.Err != nil || r.Value.Type() == types.NullType:
	case r.Value.Type() == types.StringType:
		out.value = strings.TrimSpace(r.Value.Value().(string))
	default:
		out.denied = fmt.Sprintf("valueExpression '%v' resulted in unsupported return type: %v. "+
			"Return type must be either string or null.", a.ValueExpression, r.Value.Type())
	}
	return out
}
