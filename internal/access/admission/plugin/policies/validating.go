package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// judgement is the result of all ValidatingAdmissionPolicies for one write.
type judgement struct {
	view
	denied *refusal // the first one
	// audited are the failures of bindings with the action Audit.
	audited []failedValidation
}

// refusal is why a write is refused.
type refusal struct {
	policy, binding string // binding is empty if the policy itself cannot be used
	message         string
	reason          metav1.StatusReason
}

func (p *Plugins) validate(ctx context.Context, a *admission.Attributes) error {
	policies, err := p.validating.current(ctx)
	if err != nil || len(policies) == 0 || exempt(a) {
		return err
	}
	var j *judgement // made for the first policy that concerns the write
	for _, one := range policies {
		names, ok, err := p.concerns(ctx, one.policy, a)
		if err == nil && !ok {
			continue
		}
		if j == nil {
			j = &judgement{view: view{Plugins: p, a: a}}
		}
		if err != nil {
			j.misconfigured(one.policy, nil, err)
		} else if err := j.judge(ctx, one, names); err != nil {
			return err
		}
	}
	if j == nil {
		return nil
	}
	j.annotateFailures(ctx)
	return j.denied.status(a)
}

// status returns the error of a refused write; nil if it is not refused.
func (r *refusal) status(a *admission.Attributes) error {
	if r == nil {
		return nil
	}
	by := fmt.Sprintf("ValidatingAdmissionPolicy '%s'", r.policy)
	if r.binding != "" {
		by += fmt.Sprintf(" with binding '%s'", r.binding)
	}
	message := fmt.Sprintf("%s denied request: %s", by, r.message)
	err := a.Forbidden(errors.New(message))
	s := &err.ErrStatus
	if s.Reason = r.reason; s.Reason == "" {
		s.Reason = metav1.StatusReasonInvalid
	}
	s.Code = codeOf(s.Reason)
	s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Message: message})
	return err
}

func codeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonForbidden:
		return http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		return http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusUnprocessableEntity
}

// deny refuses the write. The client gets the first refusal.
func (j *judgement) deny(r refusal) {
	if j.denied == nil {
		j.denied = &r
	}
}

// misconfigured refuses the write because a policy, or one of its bindings, cannot be used. It does nothing if the policy
// ignores failures.
func (j *judgement) misconfigured(p *policy, b *binding, err error) {
	switch {
	case p.ignore:
	case b == nil:
		j.deny(refusal{policy: p.name, message: fmt.Sprintf("failed to configure policy: %v", err)})
	default:
		j.deny(refusal{policy: p.name, binding: b.name, message: fmt.Sprintf("failed to configure binding: %v", err)})
	}
}

// judge evaluates a policy and its bindings for the write.
func (j *judgement) judge(ctx context.Context, one *bound, names admission.Names) error {
	p := one.policy
	annotations := annotations{}
	err := j.choose(ctx, one, func(b *binding, err error) { j.misconfigured(p, b, err) },
		func(b *binding, params []registry.Object) error {
			if len(params) == 0 {
				return nil
			}
			conditions, validations, err := j.seen(ctx, names)
			if err != nil {
				j.misconfigured(p, b, err)
				return nil
			}
			namespace, err := j.namespaceOf(ctx)
			if err != nil {
				return err
			}
			for _, param := range params {
				in := j.inputs(p, param, namespace)
				in.Variables = p.compiled().variables
				switch match, err := j.matches(ctx, p, conditions, in); {
				case err != nil && !p.ignore:
					j.apply(ctx, p, b, p.failure(err), &annotations)
				case match:
					j.apply(ctx, p, b, p.evaluate(ctx, validations, in), &annotations)
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	annotations.publish(ctx, p.name)
	return nil
}

// apply carries out the actions of a binding for a verdict: Deny refuses the write, Warn warns the client, and Audit
// records the failure in the audit event.
func (j *judgement) apply(ctx context.Context, p *policy, b *binding, v verdict, annotations *annotations) {
	for i := range v.decisions {
		d := &v.decisions[i]
		if !d.denied {
			if d.failed {
				j.observe(p, b, d, "allow")
			}
			continue
		}
		for _, action := range b.actions {
			switch action {
			case admissionregistrationv1.Deny:
				j.deny(refusal{p.name, b.name, d.message, d.reason})
				j.observe(p, b, d, "deny")
			case admissionregistrationv1.Audit:
				j.audited = append(j.audited, failedValidation{d.message, b.policy, b.name, i, b.actions})
				j.observe(p, b, d, "audit")
			case admissionregistrationv1.Warn:
				request.Warn(ctx, fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s",
					p.name, b.name, d.message))
				j.observe(p, b, d, "warn")
			}
		}
	}
	for _, one := range v.annotations {
		switch {
		case one.denied != "":
			j.deny(refusal{policy: p.name, binding: b.name, message: one.denied})
			j.observe(p, b, &decision{failed: true, message: one.denied, took: one.took}, "deny")
		case one.value != "":
			annotations.add(one.key, one.value)
		}
	}
}

func (j *judgement) observe(p *policy, b *binding, d *decision, action string) {
	j.o.Metrics.PolicyCheck(p.name, b.name, failureOf(d.message), action, d.took)
}

// failureOf returns the type of an error in metrics. kube-apiserver has invalid_error also for a validation that is
// false.
func failureOf(message string) string {
	switch {
	case strings.HasPrefix(message, "compilation"):
		return "compile_error"
	case strings.HasPrefix(message, "validation failed due to running out of cost budget"):
		return "out_of_budget"
	}
	return "invalid_error"
}

// A failedValidation is an entry of the audit annotation validation_failure.
type failedValidation struct {
	Message           string                                     `json:"message"`
	Policy            string                                     `json:"policy"`
	Binding           string                                     `json:"binding"`
	ExpressionIndex   int                                        `json:"expressionIndex"`
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// mostAuditedFailures is the largest number of failed validations in the audit event of a write.
const mostAuditedFailures = 50

// annotateFailures records the failures of the validations of all policies in one annotation of the audit event.
func (j *judgement) annotateFailures(ctx context.Context) {
	if len(j.audited) == 0 {
		return
	}
	failures := j.audited
	if len(failures) > mostAuditedFailures {
		j.o.Log.Warn("the audit event of a write has only the first failures of admission policies",
			"failures", len(failures), "kept", mostAuditedFailures, "resource", j.a.Resource.String())
		failures = failures[:mostAuditedFailures]
	}
	value, err := json.Marshal(failures)
	if err == nil { // texts and numbers are always encoded
		audit.Annotate(ctx, "validation.policy.admission.k8s.io/validation_failure", string(value))
	}
}

// annotations collects the audit annotations of a policy: the values of each key, without duplicates.
type annotations map[string][]string

func (a annotations) add(key, value string) {
	const longest = 10 << 10
	value = value[:min(len(value), longest)]
	if !slices.Contains(a[key], value) {
		a[key] = append(a[key], value)
	}
}

func (a annotations) publish(ctx context.Context, policy string) {
	for key, values := range a {
		audit.Annotate(ctx, policy+"/"+key, strings.Join(values, ", "))
	}
}
