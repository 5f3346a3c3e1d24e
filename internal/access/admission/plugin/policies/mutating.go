package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const mutatingName = "MutatingAdmissionPolicy"

// invocation is a policy that concerns a write, with one of its bindings and one parameter.
type invocation struct {
	policy  *policy
	binding *binding
	names   admission.Names // by which the write matched the policy
	param   registry.Object // nil if the policy is evaluated without a parameter
}

// invocationKey names an invocation.
type invocationKey struct{ policy, binding, namespace, param string }

func (i *invocation) key() invocationKey {
	key := invocationKey{policy: i.policy.name, binding: i.binding.name}
	if i.param != nil {
		key.namespace, key.param = i.param.GetNamespace(), i.param.GetName()
	}
	return key
}

// invocations is the state that the plug-in keeps for one write between the two passes.
type invocations struct {
	// made are the invocations whose policies ask to be invoked again after later changes (reinvocationPolicy
	// IfNeeded). due are those of them after which the object has changed. The second pass repeats them.
	made, due map[invocationKey]bool
	// left is the object at the end of the first pass of the plug-in. It is set only if made has entries then.
	left registry.Object
}

// changed moves all invocations from made to due. It is called after a change of the object.
func (i *invocations) changed() {
	for key := range i.made {
		i.due[key] = true
	}
	clear(i.made)
}

// invocationsOf returns the state of a write.
func invocationsOf(a *admission.Attributes) *invocations {
	if i, ok := a.Notes[mutatingName].(*invocations); ok {
		return i
	}
	if a.Notes == nil {
		a.Notes = map[string]any{}
	}
	i := &invocations{made: map[invocationKey]bool{}, due: map[invocationKey]bool{}}
	a.Notes[mutatingName] = i
	return i
}

// mutating applies all MutatingAdmissionPolicies to one write.
type mutating struct {
	view
	invocations []invocation
	// applied means that a mutation was applied, even if it has changed nothing.
	applied bool
	refused []string            // why the write is refused; empty if it is not
	reason  metav1.StatusReason // of the first refusal
}

// mutate applies the policies to the write. It decides which policies apply before it makes the first change.
func (p *Plugins) mutate(ctx context.Context, a *admission.Attributes) error {
	policies, err := p.mutating.current(ctx)
	if err != nil || len(policies) == 0 || a.Operation == admission.Delete || exempt(a) {
		return err
	}
	var m *mutating // made for the first policy that concerns the write
	for _, one := range policies {
		names, ok, err := p.concerns(ctx, one.policy, a)
		if err == nil && !ok {
			continue
		}
		if m == nil {
			m = &mutating{view: view{Plugins: p, a: a}}
		}
		if err != nil {
			m.misconfigured(one.policy, nil, err)
		} else if err := m.collect(ctx, one, names); err != nil {
			return err
		}
	}
	if m == nil {
		return nil
	}
	if len(m.invocations) > 0 {
		if err := m.invokeAll(ctx); err != nil {
			return err
		}
	}
	return m.refusal()
}

// collect adds the invocations of a policy that concerns the write.
func (m *mutating) collect(ctx context.Context, one *bound, names admission.Names) error {
	return m.choose(ctx, one, func(b *binding, err error) { m.misconfigured(one.policy, b, err) },
		func(b *binding, params []registry.Object) error {
			for _, param := range params {
				m.invocations = append(m.invocations, invocation{one.policy, b, names, param})
			}
			return nil
		})
}

// misconfigured refuses the write because a policy, or one of its bindings, cannot be used.
func (m *mutating) misconfigured(p *policy, b *binding, err error) {
	if b == nil {
		m.refuse(p, fmt.Sprintf("policy %q denied request: failed to configure policy: %v", p.name, err), "")
	} else {
		m.fail(p, b, fmt.Errorf("failed to configure binding: %w", err), "")
	}
}

// fail refuses the write because of a policy with one of its bindings.
func (m *mutating) fail(p *policy, b *binding, err error, reason metav1.StatusReason) {
	m.refuse(p, fmt.Sprintf("policy '%s' with binding '%s' denied request: %v", p.name, b.name, err), reason)
}

// refuse refuses the write unless the policy ignores failures.
func (m *mutating) refuse(p *policy, message string, reason metav1.StatusReason) {
	if p.ignore {
		return
	}
	if len(m.refused) == 0 {
		m.reason = reason
	}
	m.refused = append(m.refused, message)
}

// refusal returns the error of a refused write; nil if it is not refused.
func (m *mutating) refusal() error {
	if len(m.refused) == 0 {
		return nil
	}
	err := m.a.Forbiddenf("admission request denied by policy")
	s := &err.ErrStatus
	s.Message = m.refused[0]
	if m.reason != "" {
		s.Reason = m.reason // kube-apiserver does not change the code
	}
	for _, message := range m.refused {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Message: message})
	}
	return err
}

// invokeAll makes the invocations, one after the other. An error ends the write whatever the failure policies are.
func (m *mutating) invokeAll(ctx context.Context) error {
	memory := invocationsOf(m.a)
	if m.a.Reinvoked && len(memory.made) > 0 && !equality.Semantic.DeepEqual(memory.left, m.a.Object) {
		memory.changed()
	}
	namespace, err := m.namespaceOf(ctx)
	if err != nil {
		return err
	}
	for i := range m.invocations {
		one := &m.invocations[i]
		conditions, _, err := m.seen(ctx, one.names)
		if err != nil {
			return kerrors.NewInternalError(err)
		}
		in := m.inputs(one.policy, one.param, namespace)
		e := one.policy.compiled()
		in.Variables = e.variables
		ok, err := m.matches(ctx, one.policy, conditions, in)
		if err != nil {
			m.fail(one.policy, one.binding, err, metav1.StatusReasonInvalid)
		}
		// An invocation that was not made in the first pass is not made in the second one.
		if err != nil || !ok || m.a.Reinvoked && !memory.due[one.key()] {
			continue
		}
		if err := m.invoke(ctx, one, e, in); err != nil {
			return err
		}
		if one.policy.mutating.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
			memory.made[one.key()] = true
		}
	}
	if m.applied {
		memory.changed()
		m.a.Reinvoke = true
	}
	if !m.a.Reinvoked && len(memory.made) > 0 && m.a.Object != nil {
		memory.left = m.a.Object.DeepCopyObject().(registry.Object)
	}
	return nil
}

// invoke applies the mutations of a policy in order, each to the result of the one before. If a mutation fails,
// the next ones are still applied.
func (m *mutating) invoke(ctx context.Context, one *invocation, e *expressions, in celvars.Inputs) error {
	if m.a.Object == nil {
		return nil
	}
	for i := range e.mutations {
		begin := time.Now()
		err := m.apply(ctx, one, &e.mutations[i], in)
		m.observe(one, err, time.Since(begin))
		var status *kerrors.StatusError
		switch {
		case errors.As(err, &status):
			return status
		case err != nil:
			m.fail(one.policy, one.binding, err, metav1.StatusReasonInvalid)
		default:
			m.applied = true
		}
	}
	return nil
}

// mutation is one mutation of a policy.
type mutation struct {
	expression *celvars.Expression
	// apply replaces the object of the write by the result of applying the value of the expression to it.
	apply func(ctx context.Context, m *mutating, names admission.Names, value ref.Val) error
}

func (m *mutating) apply(ctx context.Context, one *invocation, how *mutation, in celvars.Inputs) error {
	if err := how.expression.Err; err != nil {
		return err
	}
	w, err := m.write(ctx, one.names)
	if err != nil {
		return kerrors.NewInternalError(err)
	}
	budget := celvars.Budget
	value, err := how.expression.Evaluate(ctx, w.Values(in), &budget)
	if err != nil {
		return err
	}
	before := m.a.Object
	err = how.apply(ctx, m, one.names, value)
	if m.a.Object != before {
		m.objects++
	}
	return err
}

func (m *mutating) observe(one *invocation, err error, took time.Duration) {
	failure := "no_error"
	if err != nil {
		failure = failureOf(err.Error())
	}
	m.o.Metrics.PolicyMutation(one.policy.name, one.binding.name, failure, took)
}
