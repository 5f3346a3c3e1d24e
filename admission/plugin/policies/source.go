package policies

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/admission/match"
	"github.com/keelson-dev/keelson/registry/informer"
)

// source follows policies and their bindings.
type source struct {
	mu       sync.Mutex // guards policies and bindings
	policies map[string]*policy
	bindings map[string]*binding

	// bound has the policies that have bindings, by name.
	bound     atomic.Pointer[[]*bound]
	informers atomic.Pointer[[]*informer.Informer]
}

// bound is a policy with its bindings, these by name.
type bound struct {
	policy   *policy
	bindings []*binding
}

// binding is a ValidatingAdmissionPolicyBinding. It is not changed.
type binding struct {
	name, policy string
	// criteria are nil if the binding concerns all writes of its policy.
	criteria *match.Criteria
	err      error // why there are no criteria; validation prevents that
	params   *admissionregistrationv1.ParamRef
	actions  []admissionregistrationv1.ValidationAction
}

func (s *source) start(ctx context.Context, o *Options, background informer.Background) error {
	followed := func(resource string, reset func(), apply func(informer.Change)) informer.Options {
		each := func(changes []informer.Change) {
			for _, c := range changes {
				apply(c)
			}
			s.publish()
		}
		r := admissionregistrationv1.SchemeGroupVersion.WithResource(resource).GroupResource()
		return informer.Options{
			Resource: o.Registry.Resource(r), Log: o.Log,
			Reset: func(all []informer.Change) {
				s.mu.Lock()
				defer s.mu.Unlock()
				reset()
				each(all)
			},
			Apply: func(changes []informer.Change) {
				s.mu.Lock()
				defer s.mu.Unlock()
				each(changes)
			},
		}
	}
	informers, err := informer.Start(ctx, background, "admission: ",
		followed("validatingadmissionpolicies", func() { s.policies = map[string]*policy{} }, s.setPolicy),
		followed("validatingadmissionpolicybindings", func() { s.bindings = map[string]*binding{} }, s.setBinding))
	if err == nil {
		s.informers.Store(&informers)
	}
	return err
}

// setPolicy changes a policy. Compiled expressions are kept if only the metadata or the status has changed.
func (s *source) setPolicy(c informer.Change) {
	obj, ok := c.Object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if !ok {
		delete(s.policies, c.Name)
		return
	}
	if old := s.policies[c.Name]; old == nil || !reflect.DeepEqual(*old.spec, obj.Spec) {
		s.policies[c.Name] = newPolicy(obj)
	}
}

func (s *source) setBinding(c informer.Change) {
	obj, ok := c.Object.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	if !ok {
		delete(s.bindings, c.Name)
		return
	}
	b := &binding{name: obj.Name, policy: obj.Spec.PolicyName, params: obj.Spec.ParamRef, actions: obj.Spec.ValidationActions}
	if obj.Spec.MatchResources != nil {
		b.criteria, b.err = criteriaOf(obj.Spec.MatchResources)
	}
	s.bindings[c.Name] = b
}

// publish shows the present state to current.
func (s *source) publish() {
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

// current returns the policies and bindings as all acknowledged writes have left them.
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
