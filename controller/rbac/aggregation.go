package rbac

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keelson-dev/keelson/client"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/registry/informer"
)

const (
	// AggregationManager is the field manager that owns the rules of aggregated ClusterRoles. The controller in
	// kube-controller-manager that does the same has this name too.
	AggregationManager = "clusterrole-aggregation-controller"

	// retryAfter is the time until the next attempt after a failed write.
	retryAfter = time.Second
)

// Aggregation sets the rules of ClusterRoles that have an aggregationRule to the rules of the
// ClusterRoles that it selects.
type Aggregation struct {
	Registry *registry.Registry
	Client   Client // its field manager is AggregationManager
	Log      *slog.Logger
	// Background runs the goroutines that Start starts.
	Background informer.Background

	mu    sync.Mutex // guards roles
	roles map[string]*rbacv1.ClusterRole
}

// Start updates all aggregated ClusterRoles, and watches ClusterRoles in the background.
func (a *Aggregation) Start(ctx context.Context) error {
	a.roles = map[string]*rbacv1.ClusterRole{}
	wake := make(chan struct{}, 1)
	note := func(changes []informer.Change) {
		a.mu.Lock()
		for _, c := range changes {
			if role, ok := c.Object.(*rbacv1.ClusterRole); ok {
				a.roles[c.Name] = role
			} else {
				delete(a.roles, c.Name)
			}
		}
		a.mu.Unlock()
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	_, err := informer.Start(ctx, a.Background, "aggregation of ClusterRoles: ", informer.Options{
		Resource: a.Registry.Resource(rbacv1.Resource("clusterroles")), Apply: note, Log: a.Log,
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
	if err := a.updateAggregates(ctx); err != nil {
		return err
	}
	a.Background("aggregation of ClusterRoles", func(ctx context.Context) { a.run(ctx, wake) })
	return nil
}

func (a *Aggregation) run(ctx context.Context, wake <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for a.updateAggregates(ctx) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
			}
		}
	}
}

// updateAggregates writes the aggregated ClusterRoles whose rules have changed. If one of them
// selects another one, it is updated after the change of the other has been observed.
func (a *Aggregation) updateAggregates(ctx context.Context) error {
	a.mu.Lock()
	wanted := AggregatedRules(slices.Collect(maps.Values(a.roles)))
	for name, rules := range wanted {
		if equality.Semantic.DeepEqual(rules, a.roles[name].Rules) {
			delete(wanted, name)
		}
	}
	a.mu.Unlock()
	for name, rules := range wanted {
		err := a.update(ctx, name, func(obj registry.Object) error {
			if role := obj.(*rbacv1.ClusterRole); role.AggregationRule != nil {
				role.Rules = rules
			}
			return nil
		})
		if err != nil && !kerrors.IsNotFound(err) {
			a.Log.Warn("cannot update aggregated ClusterRoles; will try again", "name", name, "error", err)
			return err
		}
	}
	return nil
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
		rules := []rbacv1.PolicyRule{}
		for i := range role.AggregationRule.ClusterRoleSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
			if err != nil {
				continue // validation rejects such selectors
			}
			for _, from := range roles {
				if from.Name != role.Name && selector.Matches(labels.Set(from.Labels)) {
					rules = appendMissing(rules, from.Rules)
				}
			}
		}
		out[role.Name] = rules
	}
	return out
}

func appendMissing(rules, more []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for _, r := range more {
		if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, r) }) {
			rules = append(rules, r)
		}
	}
	return rules
}
