package core

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	// maxDisruptedPods is how many evictions may be recorded in a budget that its controller
	// has not processed yet.
	maxDisruptedPods = 2000
	// evictionRetry is in seconds. A client may repeat the eviction then: the budget was not up to date.
	evictionRetry   = 10
	evictionRefused = "Cannot evict pod as it would violate the pod's disruption budget."
)

var budgets = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}

// evict deletes a pod if its PodDisruptionBudget allows that, and records the eviction in the
// budget.
// The budget is decremented before the pod is deleted, so two evictions at the same time cannot both use the
// last disruption. If the deletion fails afterwards, the controller of the budget corrects the number later.
func evict(ctx context.Context, a registry.Access, req registry.CreateRequest) (registry.Object, error) {
	e := req.Body.(*policyv1.Eviction)
	if e.Name != req.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if e.DeleteOptions != nil && ptr.Deref(e.DeleteOptions.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		option := field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential")
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), req.Name,
			field.ErrorList{field.Invalid(option, true, "can not be set for pod eviction, try after removing the option")})
	}
	if e.DeleteOptions != nil && len(e.DeleteOptions.DryRun) == 0 && req.DryRun {
		e.DeleteOptions.DryRun = []string{metav1.DryRunAll} // validating admission sees it, as in kube-apiserver
	}
	if err := req.Admitted(ctx); err != nil {
		return nil, err
	}
	options := e.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	dryRun := req.DryRun || len(options.DryRun) > 0
	obj, err := a.Get(ctx, corev1.Resource("pods"), req.Namespace, req.Name)
	if err != nil {
		return nil, err
	}
	pod := obj.(*corev1.Pod)
	if !needsBudget(pod) {
		return nil, evictPod(ctx, a, pod, options, dryRun, false)
	}
	budget, err := budgetOf(ctx, a, pod)
	if err != nil {
		return nil, err
	}
	free, unhealthy := budget == nil, false
	if budget != nil && !podCondition(pod, corev1.PodReady) {
		unhealthy = canEvictUnhealthy(budget)
	}
	if !free && !unhealthy {
		if err := decrementBudget(ctx, a, pod, budget, dryRun); err != nil {
			return nil, err
		}
	}
	return nil, evictPod(ctx, a, pod, options, dryRun, unhealthy)
}

// needsBudget reports whether the eviction of the pod has to respect a budget. It does not for
// a pod that has not started, has finished, or is being deleted.
func needsBudget(p *corev1.Pod) bool {
	return !podFinished(p) && p.Status.Phase != corev1.PodPending && p.DeletionTimestamp.IsZero()
}

// budgetOf returns the budget that selects the pod, nil if there is none. A budget with an empty selector
// selects all pods of the namespace, one without a selector selects none. With several budgets the eviction
// fails: it would have to decrement all of them in one transaction.
func budgetOf(ctx context.Context, a registry.Access, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	list, err := a.List(ctx, budgets, pod.Namespace)
	if err != nil {
		return nil, err
	}
	var found *policyv1.PodDisruptionBudget
	for _, obj := range list {
		b := obj.(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, plainError(
				"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
		}
		found = b
	}
	return found, nil
}

// canEvictUnhealthy reports whether a pod that is not ready may be evicted without
// decrementing the budget.
// As in kube-apiserver, an unknown policy counts as the default, IfHealthyBudget (KEP-3017). The documentation of
// the field asks clients to evict no unhealthy pod in this case.
func canEvictUnhealthy(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// decrementBudget takes one disruption from the budget, or returns the error for the client. The check is
// inside of the update, so it is repeated with the latest budget after a conflict. disruptedPods tells the
// controller of the budget that the pod is about to go, until the controller sees the deletion.
func decrementBudget(
	ctx context.Context, a registry.Access, pod *corev1.Pod, b *policyv1.PodDisruptionBudget, dryRun bool,
) error {
	_, err := a.Update(ctx, budgets, b.Namespace, b.Name, dryRun, func(obj registry.Object) error {
		b := obj.(*policyv1.PodDisruptionBudget)
		if err := checkBudget(b); err != nil {
			return err
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptionsAllowed == 0 {
			setDisruptionAllowed(b)
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[pod.Name] = now()
		return nil
	})
	return err
}

// checkBudget returns why a budget allows no eviction, nil if it does. The order matters: a status that belongs
// to an older spec says nothing about this one. Refusals are 429, so that clients such as kubectl drain try
// again. Only a status that is broken gives 403: see forbidEviction.
func checkBudget(b *policyv1.PodDisruptionBudget) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return refuseEviction(evictionRetry,
			fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case s.DisruptionsAllowed < 0:
		return forbidEviction(b.Name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > maxDisruptedPods:
		return forbidEviction(b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
			"too many pending evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed == 0:
		return refuseEviction(0, whyNotNow(b))
	}
	return nil
}

// whyNotNow returns why a budget allows no eviction at the moment. After a failed sync, the numbers of pods may be wrong.
func whyNotNow(b *policyv1.PodDisruptionBudget) string {
	s, why := &b.Status, fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
	c := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
	told := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case told && c.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("%s because it failed sync: %s", why, c.Message)
	case s.CurrentHealthy <= s.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy)
	case told:
		return fmt.Sprintf("%s (%s): %s", why, c.Reason, c.Message)
	}
	return why
}

// forbidEviction returns the error of a budget whose status is broken. why is the text of its cause.
func forbidEviction(budget, problem, why string) error {
	err := apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), budget, errors.New(problem))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", budget, why),
	})
	return err
}

// refuseEviction returns 429 with a cause. retrySeconds is the proposed delay; 0 proposes none.
func refuseEviction(retrySeconds int, cause string) error {
	err := apierrors.NewTooManyRequests(evictionRefused, retrySeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}

// setDisruptionAllowed sets the condition that the budget allows no more disruptions.
func setDisruptionAllowed(b *policyv1.PodDisruptionBudget) {
	c := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
		ObservedGeneration: b.Status.ObservedGeneration, LastTransitionTime: now(),
	}
	for i := range b.Status.Conditions {
		if old := &b.Status.Conditions[i]; old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
			return
		}
	}
	b.Status.Conditions = append(b.Status.Conditions, c)
}

// evictPod marks the pod as disrupted and deletes it. If unchanged is true, the decision
// depends on the pod not being ready, so it fails if the pod has changed since it was read.
// The condition DisruptionTarget (KEP-3329) tells the Job controller that the pod did not fail by itself.
func evictPod(
	ctx context.Context, a registry.Access, pod *corev1.Pod, options *metav1.DeleteOptions, dryRun, unchanged bool,
) error {
	o := registry.DeleteOptions{GracePeriodSeconds: options.GracePeriodSeconds, DryRun: dryRun}
	if p := options.Preconditions; p != nil {
		o.UID, o.ResourceVersion = (*string)(p.UID), p.ResourceVersion
	}
	if unchanged && o.ResourceVersion == nil {
		o.ResourceVersion = &pod.ResourceVersion
	}
	if !dryRun && preconditionsHold(o, pod) {
		version, err := a.Update(ctx, corev1.Resource("pods"), pod.Namespace, pod.Name, false,
			func(obj registry.Object) error {
				p := obj.(*corev1.Pod)
				if o.ResourceVersion != nil && *o.ResourceVersion != p.ResourceVersion {
					return apierrors.NewConflict(corev1.Resource("pods"), p.Name,
						errors.New("the pod changed while its eviction was decided"))
				}
				setPodCondition(&p.Status, corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
					Message: "Eviction API: evicting",
				})
				return nil
			})
		if err != nil {
			return err
		}
		// The condition above has changed the resourceVersion that the deletion requires.
		if o.ResourceVersion != nil {
			o.ResourceVersion = &version
		}
	}
	return a.Delete(ctx, corev1.Resource("pods"), pod.Namespace, pod.Name, o)
}

// preconditionsHold reports whether the preconditions of the deletion are met. If they are
// not, the pod must not be marked; Delete then returns the error.
func preconditionsHold(o registry.DeleteOptions, pod *corev1.Pod) bool {
	return (o.UID == nil || *o.UID == string(pod.UID)) &&
		(o.ResourceVersion == nil || *o.ResourceVersion == pod.ResourceVersion)
}
