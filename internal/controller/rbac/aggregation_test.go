package rbac

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func partRole(name string, labels map[string]string, resources ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, resource := range resources {
		r.Rules = append(r.Rules,
			rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}})
	}
	return r
}

func aggregate(name string, labels ...map[string]string) *rbacv1.ClusterRole {
	r := partRole(name, nil)
	r.AggregationRule = &rbacv1.AggregationRule{}
	for _, l := range labels {
		r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors,
			metav1.LabelSelector{MatchLabels: l})
	}
	return r
}

func resources(rules []rbacv1.PolicyRule) []string {
	var out []string
	for _, r := range rules {
		out = append(out, r.Resources...)
	}
	return out
}

func TestAggregatedRolesHaveEachRuleOnce(t *testing.T) {
	a, b := map[string]string{"to": "a"}, map[string]string{"to": "b"}
	own := aggregate("all", b, a)
	own.Labels = a // it does not select itself
	out := AggregatedRules([]*rbacv1.ClusterRole{
		partRole("z", a, "z", "shared"), partRole("y", a, "y", "shared"), partRole("x", b, "x", "shared"),
		partRole("none", nil, "none"), own, aggregate("empty", map[string]string{"to": "c"}),
	})
	if got, want := resources(out["all"]), []string{"x", "shared", "y", "z"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if rules, ok := out["empty"]; !ok || len(rules) > 0 || len(out) != 2 {
		t.Errorf("%v", out)
	}
}

// TestEqualRulesAreAggregatedOnce: an empty list is equal to a missing list. The test has 20,000 rules: comparing
// each rule with all others would take minutes.
func TestEqualRulesAreAggregatedOnce(t *testing.T) {
	const n = 20_000
	labels := map[string]string{"to": "a"}
	one, two := partRole("one", labels), partRole("two", labels)
	for i := range n {
		one.Rules = append(one.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, Resources: []string{fmt.Sprint(i)}})
		two.Rules = append(two.Rules, rbacv1.PolicyRule{
			Verbs: []string{"get"}, Resources: []string{fmt.Sprint(i)}, ResourceNames: []string{},
		})
	}
	two.Rules = append(two.Rules, rbacv1.PolicyRule{Verbs: []string{"list"}, Resources: []string{"0"}})
	out := AggregatedRules([]*rbacv1.ClusterRole{one, two, aggregate("all", labels)})
	if got := out["all"]; len(got) != n+1 || got[n].Verbs[0] != "list" {
		t.Errorf("%d rules", len(got))
	}
}

func TestAggregatedRolesFollowTheirSources(t *testing.T) {
	w := newWorld(t, "")
	w.bootstrap(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	a := &Aggregation{Registry: w.Registry, Client: w.client.As(AggregationManager), Log: slog.Default()}
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	wait.Until(t, "view has rules", func() bool { return len(w.clusterRole(t, "view").Rules) > 0 })
	view := w.clusterRole(t, "view")
	if len(view.Rules) == 0 || len(view.ManagedFields) != 2 {
		t.Fatalf("view has %d rules and the managers %v", len(view.Rules), view.ManagedFields)
	}
	w.create(t, "clusterroles", rbacv1.GroupName,
		partRole("own", map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}, "things"))
	has := func(role string) func() bool {
		return func() bool { return slices.Contains(resources(w.clusterRole(t, role).Rules), "things") }
	}
	// The role edit aggregates view, and admin aggregates edit.
	for _, role := range []string{"view", "edit", "admin"} {
		wait.Until(t, role+" has the rule", has(role))
	}
	w.change(t, "clusterroles", "own", func(o registry.Object) error {
		o.SetLabels(nil)
		return nil
	})
	for _, role := range []string{"view", "edit", "admin"} {
		wait.Until(t, role+" has it no more", func() bool { return !has(role)() })
	}
}

// stopping is a client of a server that stops during the first update.
type stopping struct {
	Client
	stop context.CancelFunc
}

func (s stopping) Update(ctx context.Context, _ client.UpdateRequest) (registry.Object, error) {
	s.stop()
	return nil, ctx.Err()
}

// TestNoWarningsAtTheStop checks that an update that fails because the server stops is not logged.
func TestNoWarningsAtTheStop(t *testing.T) {
	w := newWorld(t, "")
	w.bootstrap(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var log bytes.Buffer
	a := &Aggregation{
		Registry: w.Registry, Client: stopping{w.client, cancel}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	if err := a.Run(ctx); err != nil || log.Len() > 0 || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("%v (%v), log %q", err, ctx.Err(), &log)
	}
}

// eventually waits until a condition is true. It fails the test if that takes unreasonably long.
