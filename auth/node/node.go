// Package node authorizes kubelets: users system:node:<name> of the group
// system:nodes. A kubelet may read the secrets, config maps, claims and volumes
// that the pods of its node need, and no others; what all kubelets may do is in the
// rules of the ClusterRole system:node.
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

	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/auth/rbac"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/registry/informer"
	"github.com/keelson-dev/keelson/request"
)

const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"

	// leases is the namespace of the leases of nodes.
	leases = "kube-node-lease"
)

// NameOf returns the node that a user is; false for users that are no nodes.
func NameOf(u *request.User) (string, bool) {
	name, ok := strings.CutPrefix(u.Name, userPrefix)
	return name, ok && u.InGroup(nodesGroup)
}

// Options are what an Authorizer needs.
type Options struct {
	Registry *registry.Registry
	// Rules are what all nodes may do.
	Rules rbac.Rules
	// Observe is told how long a change of the graph took; nil: nobody is.
	Observe func(operation string, took time.Duration)
	Log     *slog.Logger
}

// Authorizer implements authz.Authorizer. The objects that it needs are loaded
// and followed from the first request of a node: a server without nodes does not
// hold them.
type Authorizer struct {
	o Options

	mu         sync.Mutex // taken to load
	background context.Context
	loaded     atomic.Pointer[loaded]
}

// loaded is the graph with what keeps it up to date.
type loaded struct {
	graph     *Graph
	followers []*informer.Informer
	stop      context.CancelFunc
}

// New returns an Authorizer that follows objects until background ends.
func New(background context.Context, o Options) *Authorizer {
	if o.Observe == nil {
		o.Observe = func(string, time.Duration) {}
	}
	return &Authorizer{o: o, background: background}
}

// graph returns the graph, loaded.
func (a *Authorizer) graph() (*loaded, error) {
	if l := a.loaded.Load(); l != nil {
		return l, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.loaded.Load(); l != nil {
		return l, nil
	}
	ctx, stop := context.WithCancel(a.background)
	l := &loaded{graph: NewGraph(), stop: stop}
	for _, s := range a.sources(l.graph) {
		r := a.o.Registry.Resource(s.resource)
		if r == nil {
			continue
		}
		f, err := informer.Start(ctx, informer.Options{
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
		if err != nil {
			l.stop()
			return nil, fmt.Errorf("node authorizer: %w", err)
		}
		l.followers = append(l.followers, f)
	}
	a.loaded.Store(l)
	return l, nil
}

// Authorize implements authz.Authorizer. Who is no node is none of its business,
// and what a node may not do others may still allow it.
func (a *Authorizer) Authorize(ctx context.Context, at authz.Attributes) (authz.Decision, string, error) {
	name, ok := NameOf(at.User)
	switch {
	case !ok:
		return authz.NoOpinion, "", nil
	case name == "":
		return authz.NoOpinion, fmt.Sprintf("unknown node for user %q", at.User.Name), nil
	}
	if at.Info.IsResource() {
		if judge := judges[schema.GroupResource{Group: at.Info.Group, Resource: at.Info.Resource}]; judge != nil {
			return judge(question{a, ctx, name, at}).answer()
		}
	}
	if a.o.Rules.Allow(at.Info) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// RulesFor implements authz.RuleResolver.
func (a *Authorizer) RulesFor(_ context.Context, u *request.User, _ string) (authz.Rules, error) {
	if _, ok := NameOf(u); ok {
		return authz.Rules{Incomplete: true}, fmt.Errorf("node authorizer does not support user rule resolution")
	}
	return authz.Rules{}, nil
}

// related says whether an object has to do with a node. What the graph does not
// know yet although it was acknowledged is waited for.
func (a *Authorizer) related(ctx context.Context, node string, o object) (bool, error) {
	l, err := a.graph()
	if err != nil {
		return false, err
	}
	if l.graph.Related(node, o) {
		return true, nil
	}
	for _, f := range l.followers {
		if err := f.Sync(ctx); err != nil {
			return false, err
		}
	}
	return l.graph.Related(node, o), nil
}
