package policies

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/access/admission/match"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

// kind is one of the two kinds of policies, with the kind of its bindings.
type kind struct {
	// policies and bindings are the names of the resources.
	policies, bindings string
	// policy and binding convert an object; they return nil for another type.
	policy  func(registry.Object) *policy
	binding func(registry.Object) *binding
}

// source follows the policies of one kind and their bindings.
type source struct {
	kind     kind
	mu       sync.Mutex // guards policies, bindings and compiled
	policies map[string]*policy
	bindings map[string]*binding
	// compiled are the expressions of all policies, by the content of the policy: policies with the same content share
	// them, and a policy keeps them when only its metadata or its status changes.
	compiled map[content]func() *expressions

	// bound has the policies that have bindings, by name.
	bound     atomic.Pointer[[]*bound]
	informers atomic.Pointer[[]*informer.Informer]
}

// bound is a policy with its bindings, which are sorted by name.
type bound struct {
	policy   *policy
	bindings []*binding
}

// binding is a binding of a policy of either kind. It is not changed.
type binding struct {
	name, policy string
	// criteria are nil if the binding concerns all writes of its policy.
	criteria *match.Criteria
	err      error // the reason if criteria could not be made; validation refuses such bindings
	params   *admissionregistrationv1.ParamRef
	// actions are the actions if a ValidatingAdmissionPolicy refuses a write.
	actions []admissionregistrationv1.ValidationAction
}

// validatingKind returns the kind ValidatingAdmissionPolicy.
func validatingKind() kind {
	return kind{
		policies: "validatingadmissionpolicies", bindings: "validatingadmissionpolicybindings",
		policy: func(obj registry.Object) *policy {
			if p, ok := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
				return newValidatingPolicy(p)
			}
			return nil
		},
		binding: func(obj registry.Object) *binding {
			b, ok := obj.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
			if !ok {
				return nil
			}
			out := newBinding(b.Name, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
			out.actions = b.Spec.ValidationActions
			return out
		},
	}
}

// mutatingKind returns the kind MutatingAdmissionPolicy.
func mutatingKind() kind {
	return kind{
		policies: "mutatingadmissionpolicies", bindings: "mutatingadmissionpolicybindings",
		policy: func(obj registry.Object) *policy {
			if p, ok := obj.(*admissionregistrationv1.MutatingAdmissionPolicy); ok {
				return newMutatingPolicy(p)
			}
			return nil
		},
		binding: func(obj registry.Object) *binding {
			if b, ok := obj.(*admissionregistrationv1.MutatingAdmissionPolicyBinding); ok {
				return newBinding(b.Name, b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)
			}
			return nil
		},
	}
}

func newBinding(
	name, policy string, params *admissionregistrationv1.ParamRef, matched *admissionregistrationv1.MatchResources,
) *binding {
	b := &binding{name: name, policy: policy, params: params}
	if matched != nil {
		b.criteria, b.err = criteriaOf(matched)
	}
	return b
}

func (s *source) start(ctx context.Context, o *Options, background informer.Background) error {
	followed := func(resource string, reset func(), apply func(informer.Change)) informer.Options {
		change := func(prepare func(), changes []informer.Change) {
			s.mu.Lock()
			defer s.mu.Unlock()
			prepare()
			for _, c := range changes {
				apply(c)
			}
			s.publish()
		}
		r := admissionregistrationv1.SchemeGroupVersion.WithResource(resource).GroupResource()
		return informer.Options{
			Resource: o.Registry.Resource(r), Log: o.Log,
			Reset: func(all []informer.Change) { change(reset, all) },
			Apply: func(changes []informer.Change) { change(func() {}, changes) },
		}
	}
	informers, err := informer.Start(ctx, background, "admission: ",
		followed(s.kind.policies, s.resetPolicies, s.setPolicy),
		followed(s.kind.bindings, func() { s.bindings = map[string]*binding{} }, s.setBinding))
	if err == nil {
		s.informers.Store(&informers)
	}
	return err
}

func (s *source) resetPolicies() {
	s.policies, s.compiled = map[string]*policy{}, map[content]func() *expressions{}
}

func (s *source) setPolicy(c informer.Change) {
	p := s.kind.policy(c.Object)
	if p == nil {
		delete(s.policies, c.Name)
		return
	}
	if known := s.compiled[p.content]; known != nil {
		p.compiled = known
	} else {
		s.compiled[p.content] = p.compiled
	}
	s.policies[c.Name] = p
}

// forget drops the expressions that no policy has any more. It does so only if compiled has more entries than
// there are policies, so some unused ones may stay.
func (s *source) forget() {
	if len(s.compiled) <= len(s.policies) {
		return
	}
	used := make(map[content]bool, len(s.policies))
	for _, p := range s.policies {
		used[p.content] = true
	}
	maps.DeleteFunc(s.compiled, func(c content, _ func() *expressions) bool { return !used[c] })
}

func (s *source) setBinding(c informer.Change) {
	if b := s.kind.binding(c.Object); b != nil {
		s.bindings[c.Name] = b
	} else {
		delete(s.bindings, c.Name)
	}
}

// publish stores the policies and their bindings for current, in the order of their names. It leaves out policies
// without a binding, which have no effect.
func (s *source) publish() {
	s.forget()
	byPolicy := map[string]*bound{}
	var all []*bound
	for _, b := range s.bindings {
		p := s.policies[b.policy]
		if p == nil {
			continue
		}
		if byPolicy[b.policy] == nil {
			byPolicy[b.policy] = &bound{policy: p}
			all = append(all, byPolicy[b.policy])
		}
		byPolicy[b.policy].bindings = append(byPolicy[b.policy].bindings, b)
	}
	slices.SortFunc(all, func(a, b *bound) int { return strings.Compare(a.policy.name, b.policy.name) })
	for _, one := range all {
		slices.SortFunc(one.bindings, func(a, b *binding) int { return strings.Compare(a.name, b.name) })
	}
	s.bound.Store(&all)
}

// current returns the policies and bindings, with all writes that were acknowledged before the call.
func (s *source) current(ctx context.Context) ([]*bound, error) {
	informers := s.informers.Load()
	if informers == nil {
		return nil, nil
	}
	for _, f := range *informers {
		if err := f.SyncOwn(ctx); err != nil {
			return nil, err
		}
	}
	return *s.bound.Load(), nil
}
