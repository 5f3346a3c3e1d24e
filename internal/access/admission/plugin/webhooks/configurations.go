package webhooks

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/access/admission/match"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

var group = admissionregistrationv1.SchemeGroupVersion

// configurations are the webhooks of one of the two kinds of configurations.
type configurations struct {
	clients *webhook.Pool // calls the webhooks
	// compile returns the webhooks of one configuration.
	compile func(registry.Object) []*hook
	// byName has the webhooks of each configuration. Only the goroutine that follows them uses it.
	byName map[string][]*hook
	// all has all webhooks in the order in which they are called.
	all      atomic.Pointer[[]*hook]
	informer atomic.Pointer[informer.Informer]
}

func (c *configurations) reset(all []informer.Change) {
	c.byName = map[string][]*hook{}
	c.apply(all)
}

func (c *configurations) apply(changes []informer.Change) {
	for _, change := range changes {
		if change.Object == nil {
			delete(c.byName, change.Name)
		} else {
			next := c.compile(change.Object)
			keepHealth(c.byName[change.Name], next)
			c.byName[change.Name] = next
		}
	}
	var all []*hook
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		all = append(all, c.byName[name]...)
	}
	c.all.Store(&all)
}

// current returns the webhooks of all configurations that were acknowledged before the call.
func (c *configurations) current(ctx context.Context) ([]*hook, error) {
	followed := c.informer.Load()
	if followed == nil {
		return nil, nil
	}
	if err := followed.SyncOwn(ctx); err != nil {
		return nil, err
	}
	return *c.all.Load(), nil
}

// hook is one webhook.
type hook struct {
	name, configuration string
	// id distinguishes webhooks of the same name; it is stable while the list in the configuration is unchanged.
	id       string
	criteria match.Criteria
	// conditions are the match conditions, which have to be true.
	conditions celvars.Conditions
	clients    *webhook.Pool
	target     webhook.Target
	versions   []string // of AdmissionReview, in the order of preference
	timeout    time.Duration
	ignore     bool // failurePolicy is Ignore
	dryRun     bool // it may be called for a dry run
	reinvoke   bool // reinvocationPolicy is IfNeeded
	// budget decides whether the webhook is skipped; nil if it never is.
	budget *budget
	// health records whether its calls fail.
	health *health
	// broken is the reason if the configuration cannot be used; validation refuses such configurations.
	broken error
}

func (p *Plugins) mutatingHooks(obj registry.Object) []*hook {
	c := obj.(*admissionregistrationv1.MutatingWebhookConfiguration)
	l := lister{p: p, clients: p.mutating.clients, configuration: c.Name, seen: map[string]int{}}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		// All other fields of a mutating webhook are those of a validating webhook.
		l.add(&admissionregistrationv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}, ptr.Deref(w.ReinvocationPolicy, "") == admissionregistrationv1.IfNeededReinvocationPolicy)
	}
	return l.hooks
}

func (p *Plugins) validatingHooks(obj registry.Object) []*hook {
	c := obj.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	l := lister{p: p, clients: p.validating.clients, configuration: c.Name, seen: map[string]int{}}
	for i := range c.Webhooks {
		l.add(&c.Webhooks[i], false)
	}
	return l.hooks
}

// lister makes the webhooks of one configuration.
type lister struct {
	p             *Plugins
	clients       *webhook.Pool
	configuration string
	seen          map[string]int // by name: the number of webhooks that add has added so far
	hooks         []*hook
}

func (l *lister) add(d *admissionregistrationv1.ValidatingWebhook, reinvoke bool) {
	h := &hook{
		name: d.Name, configuration: l.configuration,
		id:       strings.Join([]string{l.configuration, d.Name, strconv.Itoa(l.seen[d.Name])}, "/"),
		versions: d.AdmissionReviewVersions, timeout: time.Duration(ptr.Deref(d.TimeoutSeconds, 0)) * time.Second,
		ignore:   ptr.Deref(d.FailurePolicy, "") == admissionregistrationv1.Ignore,
		reinvoke: reinvoke, clients: l.clients, target: targetOf(&d.ClientConfig), health: &health{},
	}
	if h.ignore {
		h.budget = newBudget(l.p.o.Budget)
	}
	l.seen[d.Name]++
	switch ptr.Deref(d.SideEffects, "") {
	case admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun:
		h.dryRun = true
	}
	h.criteria = match.Criteria{
		Rules:      match.RulesOf(d.Rules),
		Equivalent: ptr.Deref(d.MatchPolicy, "") == admissionregistrationv1.Equivalent,
	}
	if h.criteria.Namespace, h.broken = match.Selector(d.NamespaceSelector); h.broken == nil {
		h.criteria.Object, h.broken = match.Selector(d.ObjectSelector)
	}
	if len(d.MatchConditions) > 0 {
		h.conditions = celvars.NewCompiler(celvars.Options{}).Conditions(d.MatchConditions)
	}
	l.hooks = append(l.hooks, h)
}

// targetOf returns the URL or the Service of a webhook.
func targetOf(c *admissionregistrationv1.WebhookClientConfig) webhook.Target {
	t := webhook.Target{CABundle: c.CABundle, URL: ptr.Deref(c.URL, "")}
	if s := c.Service; s != nil {
		t.Service = &webhook.Service{
			Namespace: s.Namespace, Name: s.Name, Path: ptr.Deref(s.Path, ""), Port: ptr.Deref(s.Port, 0),
		}
	}
	return t
}
