package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/admission/plugin/escalation"
	"github.com/keelson-dev/keelson/auth/abac"
	"github.com/keelson-dev/keelson/auth/always"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/auth/authzconfig"
	"github.com/keelson-dev/keelson/auth/follow"
	"github.com/keelson-dev/keelson/auth/masters"
	"github.com/keelson-dev/keelson/auth/node"
	"github.com/keelson-dev/keelson/auth/rbac"
	"github.com/keelson-dev/keelson/auth/rbac/policy"
	"github.com/keelson-dev/keelson/auth/review"
	"github.com/keelson-dev/keelson/auth/subjectaccess"
	rbaccontroller "github.com/keelson-dev/keelson/controller/rbac"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/server/background"
	"github.com/keelson-dev/keelson/server/egress"
	"github.com/keelson-dev/keelson/webhook"
)

// authorization is who may do what in a server. It is an authorizer itself: that
// of the configuration in force.
type authorization struct {
	rbac *rbac.Authorizer
	// node and abac are nil where they were not enabled when the server started.
	node *node.Authorizer
	abac abac.Policies
	// paths need no permission.
	paths   *always.Paths
	current atomic.Pointer[authz.List]
	// content is that of the configuration file at start, nil for none; required are
	// the types of authorizers that have to stay in it.
	content  []byte
	required []string
	ready    chan struct{} // closed when the default roles are there
}

// Authorize implements authz.Authorizer.
func (z *authorization) Authorize(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
	return z.current.Load().Authorize(ctx, a)
}

// RulesFor implements authz.RuleResolver.
func (z *authorization) RulesFor(ctx context.Context, u *request.User, namespace string) (authz.Rules, error) {
	return z.current.Load().RulesFor(ctx, u, namespace)
}

// buildAuthorization makes the authorizers. They know no objects before
// startAuthorization.
func (s *Server) buildAuthorization() error {
	c := &s.config.Authorization
	z := &authorization{rbac: rbac.New(), ready: make(chan struct{})}
	s.authorization = z
	var err error
	if z.paths, err = always.NewPaths(c.AlwaysAllowPaths); err != nil {
		return fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	configuration, content, err := c.load()
	if err != nil {
		return err
	}
	for _, a := range configuration.Authorizers {
		switch a.Type {
		case ModeNode:
			err = s.buildNodeAuthorizer()
		case ModeABAC:
			z.abac, err = abac.ReadFile(c.PolicyFile)
		}
		if err != nil {
			return err
		}
	}
	list, err := s.authorizersOf(configuration)
	if err != nil {
		return err
	}
	z.current.Store(&list)
	z.content = content
	for _, a := range configuration.Authorizers {
		if a.Type != ModeWebhook {
			z.required = append(z.required, a.Type)
		}
	}
	return nil
}

// load returns the configuration and, where there is a file, what it has.
func (c *AuthorizationConfig) load() (*apiserver.AuthorizationConfiguration, []byte, error) {
	if c.ConfigFile == "" {
		return c.flags(), nil, nil
	}
	content, err := os.ReadFile(c.ConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config: %w", err)
	}
	configuration, err := authzconfig.Load(content, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("--authorization-config: %w", err)
	}
	return configuration, content, nil
}

func (s *Server) buildNodeAuthorizer() error {
	rules, err := policy.NodeRules()
	if err != nil {
		return err
	}
	s.authorization.node = node.New(s.work.Context(), node.Options{
		Registry: s.api.registry, Rules: rbac.Compile(rules), Log: s.log,
		Observe: func(operation string, took time.Duration) { s.metrics.NodeGraph(operation, took) },
	})
	return nil
}

// authorizersOf returns the authorizers of a configuration; they are asked from
// top to bottom.
func (s *Server) authorizersOf(c *apiserver.AuthorizationConfiguration) (authz.List, error) {
	list := authz.List{masters.Authorizer{}}
	if s.authorization.paths != nil {
		list = append(list, s.authorization.paths)
	}
	for i := range c.Authorizers {
		a := &c.Authorizers[i]
		authorizer, err := s.authorizerOf(a)
		if err != nil {
			return nil, err
		}
		list = append(list, &counted{Authorizer: authorizer, server: s, kind: a.Type, name: a.Name})
	}
	return list, nil
}

func (s *Server) authorizerOf(a *apiserver.AuthorizerConfiguration) (authz.Authorizer, error) {
	z := s.authorization
	switch a.Type {
	case ModeAlwaysAllow:
		return always.Allow{}, nil
	case ModeAlwaysDeny:
		return always.Deny{}, nil
	case ModeRBAC:
		return z.rbac, nil
	case ModeNode:
		if z.node == nil {
			return nil, errNotAtStart(a.Type)
		}
		return z.node, nil
	case ModeABAC:
		if z.abac == nil {
			return nil, errNotAtStart(a.Type)
		}
		return z.abac, nil
	case ModeWebhook:
		return s.accessWebhook(a.Name, a.Webhook)
	}
	return nil, fmt.Errorf("unknown authorization mode %s specified", a.Type)
}

func (s *Server) accessWebhook(name string, w *apiserver.WebhookConfiguration) (authz.Authorizer, error) {
	file, err := authzconfig.Kubeconfig(w)
	if err != nil {
		return nil, err
	}
	client, err := webhook.FromKubeconfig(file, webhook.Options{Dial: s.egress.Dialer(egress.ControlPlane)})
	if err != nil {
		return nil, fmt.Errorf("authorization webhook %s: %w", name, err)
	}
	conditions, errs := authzconfig.Conditions(w, nil)
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	o := subjectaccess.Options{
		Name: name, Client: client, Version: w.SubjectAccessReviewVersion, Timeout: w.Timeout.Duration,
		Backoff: webhook.DefaultBackoff(), Conditions: conditions, Observe: lateMetrics{s},
	}
	if w.FailurePolicy == apiserver.FailurePolicyDeny {
		o.OnError = authz.Deny
	}
	if *w.CacheAuthorizedRequests {
		o.AllowedTTL = w.AuthorizedTTL.Duration
	}
	if *w.CacheUnauthorizedRequests {
		o.RefusedTTL = w.UnauthorizedTTL.Duration
	}
	return subjectaccess.New(o)
}

// followAuthorization puts a changed configuration in force. One that is wrong
// changes nothing.
func (s *Server) followAuthorization() {
	z, identity := s.authorization, hash([]byte(s.hostPort()))
	if z.content == nil {
		return
	}
	s.metrics.AuthorizationLoaded(identity, hash(z.content))
	file := follow.File{
		Path: s.config.Authorization.ConfigFile, Every: reloadEvery,
		Use: func(content []byte) error {
			if err := s.useAuthorization(content); err != nil {
				return err
			}
			s.log.Info("reloaded the authorization configuration")
			s.metrics.AuthorizationReload(true, identity, hash(content))
			return nil
		},
		Failed: func(err error) {
			s.log.Error("cannot reload the authorization configuration; what was in force stays so", "error", err)
			s.metrics.AuthorizationReload(false, identity, "")
		},
	}
	s.work.Go("authorization configuration", background.Forever(func(ctx context.Context) {
		file.Run(ctx, z.content)
	}))
}

// useAuthorization puts a configuration in force.
func (s *Server) useAuthorization(content []byte) error {
	c, err := authzconfig.Load(content, s.authorization.required)
	if err != nil {
		return err
	}
	list, err := s.authorizersOf(c)
	if err != nil {
		return err
	}
	s.authorization.current.Store(&list)
	return nil
}

func hash(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// counted counts what an authorizer decides.
type counted struct {
	authz.Authorizer
	server     *Server
	kind, name string

	once            sync.Once // the metrics are made after the authorizers
	allowed, denied prometheus.Counter
}

// Authorize implements authz.Authorizer.
func (c *counted) Authorize(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
	decision, reason, err := c.Authorizer.Authorize(ctx, a)
	if decision == authz.NoOpinion {
		return decision, reason, err
	}
	c.once.Do(func() {
		c.allowed = c.server.metrics.AuthorizationDecision(c.kind, c.name, "allowed")
		c.denied = c.server.metrics.AuthorizationDecision(c.kind, c.name, "denied")
	})
	if decision == authz.Allow {
		c.allowed.Inc()
	} else {
		c.denied.Inc()
	}
	return decision, reason, err
}

// RulesFor implements authz.RuleResolver.
func (c *counted) RulesFor(ctx context.Context, u *request.User, namespace string) (authz.Rules, error) {
	if resolver, ok := c.Authorizer.(authz.RuleResolver); ok {
		return resolver.RulesFor(ctx, u, namespace)
	}
	return authz.Rules{}, nil
}

// lateMetrics hands on to the metrics, which are made after the authorizers.
type lateMetrics struct{ *Server }

func (l lateMetrics) AuthorizationWebhook(name, result string, took time.Duration) {
	l.metrics.AuthorizationWebhook(name, result, took)
}

func (l lateMetrics) AuthorizationWebhookFailOpen(name, result string) {
	l.metrics.AuthorizationWebhookFailOpen(name, result)
}

func (l lateMetrics) AuthorizationMatch(name string, took time.Duration, failed, excluded bool) {
	l.metrics.AuthorizationMatch(name, took, failed, excluded)
}

// serveAuthorization gives the verbs what they need of it.
func (s *Server) serveAuthorization(o *rest.Options) {
	o.Authorizer = s.authorization
	o.Answers = review.Answers(s.authorization, s.authorization)
}

// guardRoles keeps users from granting what they do not have.
func (z *authorization) guardRoles() admission.Plugin { return escalation.Plugin(z, z.rbac) }

// startAuthorization makes the default roles and begins to follow roles and
// bindings.
func (s *Server) startAuthorization(ctx context.Context, reg *registry.Registry, w rbaccontroller.Writer) error {
	bootstrap := rbaccontroller.Bootstrap{Registry: reg, Writer: w, Log: s.log}
	if err := bootstrap.Run(ctx); err != nil {
		return err
	}
	if err := s.authorization.rbac.Start(s.work.Context(), reg, s.log); err != nil {
		return err
	}
	if s.config.Authorization.AggregateClusterRoles {
		aggregation := &rbaccontroller.Aggregation{Registry: reg, Writer: w, Log: s.log}
		if err := aggregation.Start(s.work.Context()); err != nil {
			return err
		}
	}
	close(s.authorization.ready)
	return nil
}

// bootstrapped waits until the default roles are there.
func (z *authorization) bootstrapped(ctx context.Context) error {
	select {
	case <-z.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
