package lifecycle

import (
	"context"
	"strconv"
	"strings"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// The most elements of lists.
const (
	maxConditions = 100
	maxRequesters = 100
	maxResponders = 11 // those of a pod, and the default one
	maxMessage    = 4000
	maxPriority   = 100_000
)

// validateEviction validates a spec; old is nil for a new one.
func validateEviction(s, old *lifecyclev1alpha1.EvictionSpec) field.ErrorList {
	r, at := declare.Rules{}, k8sfield.NewPath("spec", "target")
	var before *lifecyclev1alpha1.EvictionTarget
	if old != nil {
		before = &old.Target
	}
	if declare.Changed(before != nil, &s.Target, before) && !r.Fixed(before != nil, at) {
		r.OneOf(at, []bool{s.Target.Pod != nil}, nil, "pod")
		if pod := s.Target.Pod; pod != nil {
			validatePod(&r, pod.Name, pod.UID, at.Child("pod"))
		}
	}
	return r.Errs
}

// validateRequest validates a spec; old is nil for a new one.
// The target and the requester are immutable, because the controller has made an Eviction from them. The intent
// is not: a requester withdraws by changing it.
func validateRequest(s, old *lifecyclev1alpha1.EvictionRequestSpec) field.ErrorList {
	r, path, existed := declare.Rules{}, k8sfield.NewPath("spec"), old != nil
	if !existed {
		old = &lifecyclev1alpha1.EvictionRequestSpec{}
	}
	at := path.Child("target")
	if declare.Changed(existed, s.Target, old.Target) && !r.Fixed(existed, at) {
		r.OneOf(at, []bool{s.Target.Pod != nil}, nil, "pod")
		if pod := s.Target.Pod; pod != nil {
			validatePod(&r, pod.Name, pod.UID, at.Child("pod"))
		}
	}
	at = path.Child("requester")
	if declare.Changed(existed, s.Requester, old.Requester) {
		stop := r.Fixed(existed, at)
		if stop = r.Required(s.Requester == "", at) || stop; !stop {
			forbidReserved(&r, s.Requester, at)
			declare.Check(&r, validate.PrefixedLabelKey[string], &s.Requester, at)
		}
	}
	if declare.Changed(existed, s.Intent, old.Intent) {
		declare.Text(&r, s.Intent, path.Child("intent"), oneOf(lifecyclev1alpha1.EvictionRequestIntentEviction,
			lifecyclev1alpha1.EvictionRequestIntentWithdrawn))
	}
	return r.Errs
}

// validatePod validates the reference to a pod of the same namespace. The UID is required, so that a later pod of
// the same name is not evicted.
func validatePod(r *declare.Rules, name string, uid types.UID, path *k8sfield.Path) {
	declare.Text(r, name, path.Child("name"), validate.LongName[string])
	declare.Text(r, uid, path.Child("uid"), validate.UUID[types.UID])
}

// forbidReserved refuses a requester in a domain of Kubernetes.
// Capitals, spaces and dots at the end do not help to get around the rule: "Foo.K8S.io./x" is refused. So is
// k8s.io itself.
func forbidReserved(r *declare.Rules, requester string, path *k8sfield.Path) {
	domain, _, _ := strings.Cut(strings.ToLower(requester), "/")
	domain = "." + strings.TrimRight(strings.TrimSpace(domain), ".")
	if strings.HasSuffix(domain, ".k8s.io") || strings.HasSuffix(domain, ".kubernetes.io") {
		r.Add(k8sfield.Invalid(path, requester, "domain names *.k8s.io, *.kubernetes.io are reserved"))
	}
}

// oneOf returns a rule that allows some values.
func oneOf[T ~string](values ...T) declare.Rule[T] {
	return func(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, _ *T) field.ErrorList {
		return validate.Enum(ctx, op, path, value, nil, sets.New(values...), nil)
	}
}

func validateRequestStatus(s, old *lifecyclev1alpha1.EvictionRequestStatus) field.ErrorList {
	path := k8sfield.NewPath("status")
	r := declare.Rules{Errs: metav1validation.ValidateConditions(s.Conditions, path.Child("conditions"))}
	validateObserved(&r, s.Conditions, old.Conditions, s.ObservedGeneration, old.ObservedGeneration, path)
	return r.Errs
}

// validateObserved validates the number of conditions, and the observed generation, which only grows.
func validateObserved(
	r *declare.Rules, conditions, oldConditions []metav1.Condition, generation, old *int64, path *k8sfield.Path,
) {
	if declare.Changed(true, conditions, oldConditions) {
		declare.MaxItems(r, conditions, path.Child("conditions"), maxConditions)
	}
	at := path.Child("observedGeneration")
	// A generation that has not changed is accepted even if it is invalid.
	if ptr.Equal(generation, old) || r.Kept(old != nil, generation != nil, true, at) {
		return
	}
	r.Add(validate.Minimum(context.Background(), operation.Operation{}, at, generation, nil, 1)...)
	if old != nil && *generation < *old {
		r.Add(k8sfield.Invalid(at, *generation, "may not be decreased from "+strconv.FormatInt(*old, 10)))
	}
}

func nameOfRequester(r *lifecyclev1alpha1.Requester) string    { return r.Name }
func nameOfTarget(r *lifecyclev1alpha1.TargetResponder) string { return r.Name }
func nameOfStatus(r *lifecyclev1alpha1.ResponderStatus) string { return r.Name }

// validateDeclared applies the rules that the API types declare for a status. They follow those of validateEvictionStatus.
// An element of a list is validated again only if it has changed; see declare.Elements.
func validateDeclared(r *declare.Rules, s, old *lifecyclev1alpha1.EvictionStatus, path *k8sfield.Path) {
	validateObserved(r, s.Conditions, old.Conditions, s.ObservedGeneration, old.ObservedGeneration, path)
	at := path.Child("requesters")
	if declare.Changed(true, s.Requesters, old.Requesters) && !declare.MaxItems(r, s.Requesters, at, maxRequesters) {
		declare.Elements(r, s.Requesters, old.Requesters, at, nameOfRequester,
			func(q, old *lifecyclev1alpha1.Requester, path *k8sfield.Path) {
				validateKey(r, old != nil, q.Name, path)
				if old == nil || q.Intent != old.Intent {
					declare.Text(r, q.Intent, path.Child("intent"), oneOf(lifecyclev1alpha1.RequesterIntentEviction,
						lifecyclev1alpha1.RequesterIntentWithdrawn))
				}
			})
	}
	at = path.Child("targetResponders")
	if declare.Changed(true, s.TargetResponders, old.TargetResponders) &&
		!declare.MaxItems(r, s.TargetResponders, at, maxResponders) {
		declare.Elements(r, s.TargetResponders, old.TargetResponders, at, nameOfTarget,
			func(t, old *lifecyclev1alpha1.TargetResponder, path *k8sfield.Path) { validateTarget(r, t, old, path) })
	}
	at = path.Child("responders")
	if declare.Changed(true, s.Responders, old.Responders) && !declare.MaxItems(r, s.Responders, at, maxResponders) {
		declare.Elements(r, s.Responders, old.Responders, at, nameOfStatus,
			func(s, old *lifecyclev1alpha1.ResponderStatus, path *k8sfield.Path) {
				validateResponder(r, s, old, path)
			})
	}
}

// validateKey validates the name of a new element of a list. existed means that the old list has an element of this name.
func validateKey(r *declare.Rules, existed bool, name string, path *k8sfield.Path) {
	if !existed {
		declare.Text(r, name, path.Child("name"), validate.PrefixedLabelKey[string])
	}
}

// validateTarget validates a responder of the list. The priority cannot change, because the order of the
// responders depends on it.
func validateTarget(r *declare.Rules, t, old *lifecyclev1alpha1.TargetResponder, path *k8sfield.Path) {
	existed := old != nil
	if !existed {
		old = &lifecyclev1alpha1.TargetResponder{}
	}
	validateKey(r, existed, t.Name, path)
	at := path.Child("priority")
	if declare.Changed(existed, t.Priority, old.Priority) {
		stop := r.Required(t.Priority == nil, at)
		if stop = r.Unmodified(old.Priority != nil, t.Priority != nil, true, at) || stop; !stop {
			declare.Check(r, atMost, t.Priority, at)
			declare.Check(r, notNegative, t.Priority, at)
		}
	}
	if !existed || t.State != old.State {
		declare.Text(r, t.State, path.Child("state"), oneOf(lifecyclev1alpha1.ResponderStateInactive,
			lifecyclev1alpha1.ResponderStateActive, lifecyclev1alpha1.ResponderStateInterrupted,
			lifecyclev1alpha1.ResponderStateCanceled, lifecyclev1alpha1.ResponderStateCompleted))
	}
}

func atMost(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, _ *int32) field.ErrorList {
	return validate.Maximum(ctx, op, path, value, nil, maxPriority)
}

func notNegative(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, _ *int32) field.ErrorList {
	return validate.Minimum(ctx, op, path, value, nil, 0)
}

// validateResponder validates the fields that the API declares as unchangeable once set. The times themselves are
// compared by progression.responder.
func validateResponder(r *declare.Rules, s, old *lifecyclev1alpha1.ResponderStatus, path *k8sfield.Path) {
	existed := old != nil
	if !existed {
		old = &lifecyclev1alpha1.ResponderStatus{}
	}
	validateKey(r, existed, s.Name, path)
	final := func(t, old *metav1.Time, name string) {
		r.Unmodified(old != nil, t != nil, declare.Changed(true, t, old), path.Child(name))
	}
	final(s.StartTime, old.StartTime, "startTime")
	final(s.CompletionTime, old.CompletionTime, "completionTime")
	if s.Message != nil && !ptr.Equal(s.Message, old.Message) {
		r.Add(validate.MaxLength(context.Background(), operation.Operation{}, path.Child("message"), s.Message, nil,
			maxMessage)...)
	}
}
