package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// The status of an eviction has two lists with the same names. targetResponders has the state of each responder, which the
// controller of evictions sets; responders has what each has reported. One responder after the other, in the order of their
// priorities, becomes Active and then Completed, Interrupted or Canceled. The rules below keep to that order whoever writes
// the status.

const (
	heartbeatDeadline = 20 * time.Minute // an active responder without a heartbeat may be interrupted afterwards
	timeSkew          = 30 * time.Second // the most that the clock of a client may differ from the clock of the server
	longestEviction   = 10 * 365 * 24 * time.Hour

	// The API documents the name and the priority of the responder that calls the eviction subresource of the
	// pod. It runs last: its priority is lower than that of all others, because 0 to 999 are reserved. The
	// controller of a pod should use 10,000.
	defaultResponder         = "imperative-eviction.k8s.io/evictor"
	defaultResponderPriority = 100
	reservedPriorities       = 1000 // those below are for responders of Kubernetes
)

// validateEvictionStatus validates an update of a status. A condition that ended the eviction cannot be taken
// back, because responders may have stopped. After such an attempt the eviction still counts as ended for the
// rules of responders.
func validateEvictionStatus(s, old *lifecyclev1alpha1.EvictionStatus, now time.Time) field.ErrorList {
	path := k8sfield.NewPath("status")
	at := path.Child("conditions")
	r := declare.Rules{Errs: metav1validation.ValidateConditions(s.Conditions, at)}
	ended := false
	for _, t := range []lifecyclev1alpha1.EvictionConditionType{
		lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionFailed,
	} {
		ended = ended || meta.IsStatusConditionTrue(s.Conditions, string(t))
	}
	for i := range old.Conditions {
		if reverted(&old.Conditions[i], s.Conditions) {
			r.Add(k8sfield.Invalid(at, s.Conditions, old.Conditions[i].Type+" condition status cannot be reverted"))
			ended = true
		}
	}
	p := &progression{Rules: &r, now: now, ended: ended}
	p.targets(s.TargetResponders, old.TargetResponders, s.Responders, path.Child("targetResponders"))
	p.responders(s, old.Responders, path.Child("responders"))
	validateDeclared(&r, s, old, path)
	return r.Errs
}

// reverted reports whether a condition that ends the eviction is not true any more, or has another reason.
func reverted(old *metav1.Condition, conditions []metav1.Condition) bool {
	switch lifecyclev1alpha1.EvictionConditionType(old.Type) {
	case lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionFailed:
	default:
		return false
	}
	c := meta.FindStatusCondition(conditions, old.Type)
	return old.Status == metav1.ConditionTrue &&
		(c == nil || c.Status == metav1.ConditionFalse || c.Reason != old.Reason)
}

// progression validates the changes of responders.
type progression struct {
	*declare.Rules
	now   time.Time
	ended bool // the eviction has succeeded or failed
}

func isFinal(s lifecyclev1alpha1.ResponderStateType) bool { return slices.Contains(finalStates(), s) }

func finalStates() []lifecyclev1alpha1.ResponderStateType {
	return []lifecyclev1alpha1.ResponderStateType{
		lifecyclev1alpha1.ResponderStateCanceled, lifecyclev1alpha1.ResponderStateCompleted,
		lifecyclev1alpha1.ResponderStateInterrupted,
	}
}

// targets validates the states of all responders. The list is set once: its names cannot change later, so that
// the order is fixed from the beginning. Errors name the index in the list as it was sent, although the states
// are compared in the order of priorities.
func (p *progression) targets(
	targets, old []lifecyclev1alpha1.TargetResponder, statuses []lifecyclev1alpha1.ResponderStatus, path *k8sfield.Path,
) {
	if len(old) > 0 {
		if len(targets) != len(old) {
			p.Add(k8sfield.Invalid(path, declare.Internal(targets), "must preserve the same length and the same keys"))
			return
		}
		if !hasAll(targets, nameOfTarget, old, nameOfTarget) {
			p.Add(k8sfield.Invalid(path, declare.Internal(targets), "must preserve the same keys"))
			return
		}
	}
	// The declared rules report too many and repeated responders. The order of such a list has no meaning.
	if len(targets) == 0 || len(targets) > maxResponders || hasDuplicates(targets, nameOfTarget) {
		return
	}
	order := slices.SortedFunc(slices.Values(targets), compareTargets)
	allowed := allowedStates(order, slices.SortedFunc(slices.Values(old), compareTargets), p.ended)
	for i := range order {
		t := &order[i]
		at := slices.IndexFunc(targets, func(o lifecyclev1alpha1.TargetResponder) bool { return o.Name == t.Name })
		// The last status of a name counts.
		var status *lifecyclev1alpha1.ResponderStatus
		for j := range statuses {
			if statuses[j].Name == t.Name {
				status = &statuses[j]
			}
		}
		p.target(t, status, allowed[i], path.Index(at))
	}
}

// hasAll reports whether a list has all the names of another one.
func hasAll[T, U any](list []T, name func(*T) string, others []U, otherName func(*U) string) bool {
	for i := range others {
		if declare.Named(list, otherName(&others[i]), name) == nil {
			return false
		}
	}
	return true
}

func hasDuplicates[T any](list []T, name func(*T) string) bool {
	for i := range list {
		if declare.Named(list, name(&list[i]), name) != &list[i] {
			return true
		}
	}
	return false
}

// compareTargets sorts responders by their priority, the highest first and those without one last. For equal
// priorities the domains of the names are compared from their ends, label by label.
// For example, evict.a.com/x comes before b.com/x, because com is equal and a is before b.
func compareTargets(a, b lifecyclev1alpha1.TargetResponder) int {
	switch {
	case ptr.Equal(a.Priority, b.Priority):
	case a.Priority == nil:
		return 1
	case b.Priority == nil:
		return -1
	default:
		return cmp.Compare(*b.Priority, *a.Priority)
	}
	aDomain, aKey, _ := strings.Cut(a.Name, "/")
	bDomain, bKey, _ := strings.Cut(b.Name, "/")
	return cmp.Or(slices.Compare(labelsFromEnd(aDomain), labelsFromEnd(bDomain)), strings.Compare(aKey, bKey))
}

func labelsFromEnd(domain string) []string {
	labels := strings.Split(domain, ".")
	slices.Reverse(labels)
	return labels
}

// states are the states that a responder may have, in alphabetical order, and why.
type states struct {
	list   []lifecyclev1alpha1.ResponderStateType
	reason string
}

func oneState(s lifecyclev1alpha1.ResponderStateType, reason string) states {
	return states{[]lifecyclev1alpha1.ResponderStateType{s}, reason}
}

// allowedStates returns the states that each responder may have. Both lists are in the order of responders; old is empty if
// they are set for the first time.
// At most one responder is active. last is its index in the old list, -1 if there is none. leaves says that the
// update ends it.
//
// For example, with the old states Completed, Active, Inactive: the first must stay Completed. The second may
// stay Active, and then the third must stay Inactive. Or the second becomes Completed, Interrupted or Canceled,
// and then the third must become Active in the same update, unless the eviction has ended. When the states are
// set for the first time, the first is Active and the others are Inactive.
func allowedStates(targets, old []lifecyclev1alpha1.TargetResponder, ended bool) []states {
	const (
		inactive, active = lifecyclev1alpha1.ResponderStateInactive, lifecyclev1alpha1.ResponderStateActive
		hasEnded         = "the eviction request has finished processing"
	)
	last := slices.IndexFunc(old, func(t lifecyclev1alpha1.TargetResponder) bool { return t.State == active })
	leaves := last >= 0 && targets[last].State != active
	allEnded := len(old) > 0 && last < 0 && (ended || isFinal(old[len(old)-1].State))
	out := make([]states, len(targets))
	for i := range targets {
		switch first := i == 0 && len(old) == 0; {
		case i < last || allEnded:
			out[i] = oneState(old[i].State, "final state is immutable")
		case i == last && leaves:
			out[i] = states{finalStates(), "this responder must reach a final state"}
		case i == last && ended:
			out[i] = states{finalStates(), hasEnded}
		case i == last:
			out[i] = oneState(active, "the eviction request stays active")
		case !first && (i != last+1 || !leaves):
			out[i] = oneState(inactive, "the previously active has not finished processing")
		case ended:
			out[i] = oneState(inactive, hasEnded)
		default:
			out[i] = oneState(active, "this responder is next in line")
		}
	}
	return out
}

// target validates the state of a responder. status is what it has reported, nil if it is not in the list of responders.
func (p *progression) target(
	t *lifecyclev1alpha1.TargetResponder, status *lifecyclev1alpha1.ResponderStatus, allowed states, path *k8sfield.Path,
) {
	reports := k8sfield.NewPath("status", "responders")
	if status == nil {
		p.Add(k8sfield.Invalid(path, declare.Internal(t), fmt.Sprintf("%q has to be tracked in %s first", t.Name, reports)))
		return
	}
	at := path.Child("priority")
	// The declared rules report a missing or negative priority.
	switch value := ptr.Deref(t.Priority, -1); {
	case value < 0:
	case t.Name != defaultResponder && value < reservedPriorities:
		p.Add(k8sfield.Invalid(at, value, "priorities 0-999 are reserved for responders with *.k8s.io suffix"))
	case t.Name == defaultResponder && value != defaultResponderPriority:
		p.Add(k8sfield.Invalid(at, value,
			fmt.Sprintf("core k8s responder is expected to have priority: %d", defaultResponderPriority)))
	}
	at = path.Child("state")
	if !slices.Contains(allowed.list, t.State) {
		names := declare.Texts(allowed.list, func(s lifecyclev1alpha1.ResponderStateType) string { return string(s) })
		p.Add(k8sfield.Invalid(at, t.State,
			fmt.Sprintf("must be one of: %s, because %s", strings.Join(names, ", "), allowed.reason)))
		return
	}
	if p.runs(t.State, status) {
		p.Add(k8sfield.Forbidden(at, fmt.Sprintf(
			"must stay Active because the responder is in progress and it should report %s or %s",
			reports.Child("heartbeatTime"), reports.Child("completionTime"))))
	}
	if t.State == lifecyclev1alpha1.ResponderStateCompleted && status.CompletionTime == nil {
		p.Add(k8sfield.Invalid(at, t.State, fmt.Sprintf("cannot become Completed because the responder didn't report %s",
			reports.Child("completionTime"))))
	}
}

// runs reports whether a responder that is not Active has started, has not completed, and was not silent for longer than the
// deadline.
// The deadline is shortened by the skew, because the controller whose clock is ahead may see it pass before this
// server does.
func (p *progression) runs(
	state lifecyclev1alpha1.ResponderStateType, s *lifecyclev1alpha1.ResponderStatus,
) bool {
	if state == lifecyclev1alpha1.ResponderStateActive || s.StartTime == nil || s.CompletionTime != nil || p.ended {
		return false
	}
	heard := cmp.Or(s.HeartbeatTime, s.StartTime)
	return p.now.Before(heard.Add(heartbeatDeadline - timeSkew))
}

// responders validates what the responders have reported. The list has to have the same names as
// targetResponders, in any order: the controller creates an empty entry for each, and a responder fills in only
// its own.
func (p *progression) responders(
	s *lifecyclev1alpha1.EvictionStatus, old []lifecyclev1alpha1.ResponderStatus, path *k8sfield.Path,
) {
	if len(s.TargetResponders) != len(s.Responders) {
		p.Add(k8sfield.Invalid(path, declare.Internal(s.Responders),
			"must be the same length as status.targetResponders and contain the same keys"))
		return
	}
	if !hasAll(s.Responders, nameOfStatus, s.TargetResponders, nameOfTarget) {
		p.Add(k8sfield.Invalid(path, declare.Internal(s.Responders),
			"must contain the same keys as status.targetResponders"))
		return
	}
	if len(s.Responders) > maxResponders || hasDuplicates(s.Responders, nameOfStatus) {
		return
	}
	for i := range s.Responders {
		status := &s.Responders[i]
		target := declare.Named(s.TargetResponders, status.Name, nameOfTarget)
		before := declare.Named(old, status.Name, nameOfStatus)
		active := target != nil && target.State == lifecyclev1alpha1.ResponderStateActive
		p.responder(status, before, active, path.Index(i))
	}
}

// responder validates what a responder reports. Only an active one may change it; old is nil if it is new.
func (p *progression) responder(s, old *lifecyclev1alpha1.ResponderStatus, active bool, path *k8sfield.Path) {
	if old == nil {
		old = &lifecyclev1alpha1.ResponderStatus{}
	} else if declare.Changed(true, s, old) && !active {
		p.Add(k8sfield.Invalid(path, declare.Internal(s), "field is immutable"))
		return
	}
	p.startTime(s.StartTime, old.StartTime, active, path.Child("startTime"))
	p.heartbeat(s, old.HeartbeatTime, path)
	at := path.Child("expectedCompletionTime")
	if t := s.ExpectedCompletionTime; t != nil && !t.Equal(old.ExpectedCompletionTime) && p.afterStart(t, s, path, at) {
		switch {
		case t.Time.Before(p.now.Add(-timeSkew)):
			p.Add(k8sfield.Invalid(at, t, "cannot be set to the past time"))
		case t.After(p.now.Add(longestEviction)):
			p.Add(k8sfield.Invalid(at, t, "must complete within 10 years"))
		}
	}
	at = path.Child("completionTime")
	same := s.CompletionTime.Equal(old.CompletionTime)
	// The declared rules refuse to change it once it is set.
	if t := s.CompletionTime; t != nil && (old.CompletionTime == nil || same) && p.afterStart(t, s, path, at) && !same {
		p.present(t, at)
	}
}

// startTime validates the start, which the controller sets together with the state Active. It cannot change,
// because all other times are compared with it.
func (p *progression) startTime(t, old *metav1.Time, active bool, path *k8sfield.Path) {
	switch {
	case old != nil && !old.Equal(t): // the declared rules refuse it
	case t == nil && active:
		p.Add(k8sfield.Required(path, "is required for an active responder"))
	case t != nil && !t.Equal(old):
		p.present(t, path)
	}
}

// heartbeat validates the last sign of life. It has to be the present time: a responder that could set it to a
// later time would put off the deadline.
func (p *progression) heartbeat(s *lifecyclev1alpha1.ResponderStatus, old *metav1.Time, path *k8sfield.Path) {
	at, t := path.Child("heartbeatTime"), s.HeartbeatTime
	switch {
	case t.Equal(old):
	case t == nil:
		p.Add(k8sfield.Required(at, "is required once set"))
	case s.StartTime != nil && t.Before(old):
		p.Add(k8sfield.Invalid(at, t, "cannot be decreased"))
	case p.afterStart(t, s, path, at):
		p.present(t, at)
	}
}

// afterStart requires that a time is not before the start of its responder.
func (p *progression) afterStart(t *metav1.Time, s *lifecyclev1alpha1.ResponderStatus, responder, path *k8sfield.Path) bool {
	start := responder.Child("startTime").String()
	switch {
	case s.StartTime == nil:
		return !p.Add(k8sfield.Invalid(path, t, fmt.Sprintf("cannot be set before %s is set", start)))
	case t.Before(s.StartTime):
		return !p.Add(k8sfield.Invalid(path, t, fmt.Sprintf("must occur after %s", start)))
	}
	return true
}

// present requires that a time is about now.
// Both ends of the range are excluded.
func (p *progression) present(t *metav1.Time, path *k8sfield.Path) {
	if !t.After(p.now.Add(-timeSkew)) || !t.Time.Before(p.now.Add(timeSkew)) {
		p.Add(k8sfield.Invalid(path, t, "must be set to the present time"))
	}
}
