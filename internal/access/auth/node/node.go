// Package node is the authorization mode Node, which authorizes kubelets: users named
// system:node:<name> in the group system:nodes. A kubelet may read the secrets, config maps,
// claims and volumes that the pods on its node need, and no others. The rules of the ClusterRole system:node say what all
// kubelets may do.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/access/auth/rbac"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"

	// leaseNamespace is the namespace with the Leases of nodes.
	leaseNamespace = "kube-node-lease"
)

// NodeName returns the name of the node whose kubelet the user is. It returns false for users
// that are not nodes.
func NodeName(u *request.User) (string, bool) {
	name, ok := strings.CutPrefix(u.Name, userPrefix)
	return name, ok && u.InGroup(nodesGroup)
}

// Options configure an Authorizer.
type Options struct {
	Registry *registry.Registry
	// Rules are the permissions that all nodes have.
	Rules rbac.Rules
	// Observe is called after each change of the graph with the time it took.
	Observe func(operation string, took time.Duration)
	Log     *slog.Logger
	// Background runs the informers.
	Background informer.Background
}

// Authorizer implements authz.Authorizer. It loads the objects that it needs when a node makes
// the first request, and watches them from then on. So a server without nodes does not keep
// them.
type Authorizer struct {
	o Options

	mu    sync.Mutex // held while the objects are loaded
	ctx   context.Context
	state atomic.Pointer[graphState]
}

// graphState is the graph and the informers that keep it up to date.
type graphState struct {
	graph     *Graph
	informers []*informer.Informer
}

// New returns an Authorizer. It can load objects until ctx is done.
func New(ctx context.Context, o Options) *Authorizer {
	return &Authorizer{o: o, ctx: ctx}
}

// graph returns the graph. The first call loads it.
func (a *Authorizer) graph() (*graphState, error) {
	if l := a.state.Load(); l != nil {
		return l, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.state.Load(); l != nil {
		return l, nil
	}
	l := &graphState{graph: NewGraph()}
	var options []informer.Options
	for _, s := range a.sources(l.graph) {
		r := a.o.Registry.Resource(s.resource)
		if r == nil {
			continue
		}
		options = append(options, informer.Options{
			Resource: r, Concerns: s.concerns, Log: a.o.Log, Apply: s.apply,
			Reset: func(all []informer.Change) {
				s.apply(all)
				there := make(map[object]bool, len(all))
				for _, c := range all {
					there[object{s.kind, c.Namespace, c.Name}] = true
				}
				l.graph.retain(s.kind, there)
			},
		})
	}
	var err error
	if l.informers, err = informer.Start(a.ctx, a.o.Background, "node authorizer: ", options...); err != nil {
		return nil, fmt.Errorf("node authorizer: %w", err)
	}
	a.state.Store(l)
	return l, nil
}

// Authorize implements authz.Authorizer. Users that are not nodes get NoOpinion. A node also
// gets NoOpinion for what it may not do, so that another authorizer can still allow it.
func (a *Authorizer) Authorize(ctx context.Context, at authz.Attributes) (authz.Decision, string, error) {
	name, ok := NodeName(at.User)
	switch {
	case !ok:
		return authz.NoOpinion, "", nil
	case name == "":
		return authz.NoOpinion, fmt.Sprintf("unknown node for user %q", at.User.Name), nil
	}
	if at.Info.IsResource() {
		if rule := resourceRules[schema.GroupResource{Group: at.Info.Group, Resource: at.Info.Resource}]; rule != nil {
			return rule(nodeRequest{a, ctx, name, at}).result()
		}
	}
	if a.o.Rules.Allow(at.Info) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// RulesFor implements authz.RuleResolver.
func (a *Authorizer) RulesFor(_ context.Context, u *request.User, _ string) (authz.Rules, error) {
	if _, ok := NodeName(u); ok {
		return authz.Rules{Incomplete: true}, fmt.Errorf("node authorizer does not support user rule resolution")
	}
	return authz.Rules{}, nil
}

// related reports whether an object is related to a node. If it is not in the graph, it waits until the graph contains
// every write that was acknowledged before the call, and checks again.
func (a *Authorizer) related(ctx context.Context, node string, o object) (bool, error) {
	l, err := a.graph()
	if err != nil {
		return false, err
	}
	if l.graph.Related(node, o) {
		return true, nil
	}
	for _, f := range l.informers {
		if err := f.Sync(ctx); err != nil {
			return false, err
		}
	}
	return l.graph.Related(node, o), nil
}
