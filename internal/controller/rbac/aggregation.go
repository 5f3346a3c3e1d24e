package rbac

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// AggregationManager is the field manager that owns the rules of aggregated ClusterRoles. It is also the name
	// of the corresponding controller in kube-controller-manager.
	AggregationManager = "clusterrole-aggregation-controller"

	// aggregationRuleField is the number of the field in the protobuf message of a ClusterRole.
	aggregationRuleField = 3
)

// Aggregation computes the rules of ClusterRoles that have an aggregationRule. They get the rules of the
// ClusterRoles that their aggregationRule selects.
type Aggregation struct {
	Registry *registry.Registry
	Client   Client // its field manager is AggregationManager
	Log      *slog.Logger
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part

	mu    sync.Mutex // guards what follows
	roles map[string]clusterRole
	// changed means that roles has changed since they were last read.
	changed bool
}

// clusterRole is a ClusterRole as it is stored: most of them are never decoded again.
type clusterRole struct {
	*cache.Object
	rule *rbacv1.AggregationRule // nil if it does not aggregate others
}

// Run keeps the aggregated ClusterRoles up to date until ctx ends. It fails if ClusterRoles cannot be read at the start.
func (a *Aggregation) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.roles = map[string]clusterRole{}
	wake := make(chan struct{}, 1)
	note := func(changes []informer.Change) {
		a.mu.Lock()
		for _, c := range changes {
			if delete(a.roles, c.Name); c.Stored != nil {
				a.roles[c.Name] = clusterRole{c.Stored, a.ruleOf(ctx, c.Stored)}
			}
		}
		a.changed = true
		a.Activity.Set(1)
		a.mu.Unlock()
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	background := func(_ string, run func(context.Context)) { running.Go(func() { run(ctx) }) }
	_, err := informer.Start(ctx, background, "", informer.Options{
		Resource: a.resource(), Apply: note, Log: a.Log, Stored: true,
		Reset: func(all []informer.Change) {
			a.mu.Lock()
			clear(a.roles)
			a.mu.Unlock()
			note(all)
		},
	})
	if err != nil {
		return err
	}
	a.Activity.Started()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
		err := a.updateAggregates(ctx)
		for ; err != nil && ctx.Err() == nil; err = a.updateAggregates(ctx) {
			a.Log.Warn("cannot update aggregated ClusterRoles; will try again", "error", err)
			workers.Pause(ctx, workers.RetryAfter)
		}
		if err == nil {
			a.done()
		}
	}
}

// done notes that the ClusterRoles are up to date, unless they have changed meanwhile.
func (a *Aggregation) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.changed {
		a.Activity.Set(0)
	}
}

// updateAggregates writes the aggregated ClusterRoles whose rules have changed. If a role selects another
// aggregated role, it is updated when the change of the other role has been observed.
func (a *Aggregation) updateAggregates(ctx context.Context) error {
	roles, err := a.concerned(ctx)
	if err != nil {
		return err
	}
	wanted := AggregatedRules(roles)
	for _, role := range roles {
		if equality.Semantic.DeepEqual(wanted[role.Name], role.Rules) {
			delete(wanted, role.Name)
		}
	}
	for name, rules := range wanted {
		err := a.update(ctx, name, func(obj registry.Object) error {
			if role := obj.(*rbacv1.ClusterRole); role.AggregationRule != nil {
				role.Rules = rules
			}
			return nil
		})
		if err != nil && !kerrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// concerned returns the ClusterRoles that aggregate others, and those that they may select. It fails if one of them
// cannot be read, because without its rules others would lose permissions.
func (a *Aggregation) concerned(ctx context.Context) (roles []*rbacv1.ClusterRole, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = false
	var selectors []labels.Selector
	for _, role := range a.roles {
		if role.rule == nil {
			continue
		}
		for i := range role.rule.ClusterRoleSelectors {
			// Validation rejects selectors that cause an error here.
			if s, err := metav1.LabelSelectorAsSelector(&role.rule.ClusterRoleSelectors[i]); err == nil {
				selectors = append(selectors, s)
			}
		}
	}
	for _, role := range a.roles {
		set := labels.Set{}
		for _, l := range role.Labels {
			set[l.Key] = l.Value
		}
		selected := func(s labels.Selector) bool { return s.Matches(set) }
		if role.rule != nil || slices.ContainsFunc(selectors, selected) {
			obj, err := a.resource().Decoder.Decode(ctx, role.Object)
			if err != nil {
				return nil, err
			}
			roles = append(roles, obj.(*rbacv1.ClusterRole))
		}
	}
	return roles, nil
}

// ruleOf returns the aggregationRule of a stored ClusterRole, nil if it has none.
func (a *Aggregation) ruleOf(ctx context.Context, o *cache.Object) *rbacv1.AggregationRule {
	if found, err := wire.Find(o.Data, []int32{aggregationRuleField}); err == nil && !found.Found {
		return nil // most have none, and need not be decoded
	}
	obj, err := a.resource().Decoder.Decode(ctx, o)
	if err != nil {
		a.Log.Warn("cannot read a ClusterRole; if it aggregates others, its rules are not updated", "name", o.Name, "error", err)
		return nil
	}
	return obj.(*rbacv1.ClusterRole).AggregationRule
}

func (a *Aggregation) resource() *registry.Resource {
	return a.Registry.Resource(rbacv1.Resource("clusterroles"))
}

func (a *Aggregation) update(ctx context.Context, name string, change func(registry.Object) error) error {
	ref := client.Ref{Resource: rbacv1.SchemeGroupVersion.WithResource("clusterroles"), Name: name}
	_, err := a.Client.Update(ctx, client.UpdateRequest{Ref: ref, Change: change})
	return err
}

// AggregatedRules returns the rules that each aggregated ClusterRole should have: the rules of
// the roles that it selects, ordered by selector and name, without duplicates.
func AggregatedRules(roles []*rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule {
	slices.SortFunc(roles, func(a, b *rbacv1.ClusterRole) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	out := map[string][]rbacv1.PolicyRule{}
	for _, role := range roles {
		if role.AggregationRule == nil {
			continue
		}
		rules, known := []rbacv1.PolicyRule{}, map[string]bool{}
		for i := range role.AggregationRule.ClusterRoleSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
			if err != nil {
				continue // validation rejects a selector with an error
			}
			for _, from := range roles {
				if from.Name != role.Name && selector.Matches(labels.Set(from.Labels)) {
					rules = appendMissing(rules, known, from.Rules)
				}
			}
		}
		out[role.Name] = rules
	}
	return out
}

// appendMissing appends the elements of more that are not in rules. known has the encodings of rules; nil and empty
// lists have the same encoding.
func appendMissing(rules []rbacv1.PolicyRule, known map[string]bool, more []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for i := range more {
		encoded, err := more[i].Marshal()
		if err == nil && known[string(encoded)] {
			continue
		}
		if err == nil {
			known[string(encoded)] = true
		}
		rules = append(rules, more[i])
	}
	return rules
}
