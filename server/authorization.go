package server

import (
	"context"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/admission/plugin/escalation"
	"github.com/keelson-dev/keelson/auth/always"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/auth/masters"
	"github.com/keelson-dev/keelson/auth/node"
	"github.com/keelson-dev/keelson/auth/rbac"
	"github.com/keelson-dev/keelson/auth/rbac/policy"
	"github.com/keelson-dev/keelson/auth/review"
	rbaccontroller "github.com/keelson-dev/keelson/controller/rbac"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/rest"
)

// authorization is who may do what in a server.
type authorization struct {
	// authorizers are asked from top to bottom.
	authorizers authz.List
	rbac        *rbac.Authorizer
	node        *node.Authorizer
	ready       chan struct{} // closed when the default roles are there
}

// buildAuthorization makes the authorizers. They know no objects before
// startAuthorization.
func (s *Server) buildAuthorization() error {
	rules, err := policy.NodeRules()
	if err != nil {
		return err
	}
	z := &authorization{rbac: rbac.New(), ready: make(chan struct{})}
	z.node = node.New(s.background, node.Options{
		Registry: s.api.registry, Rules: rbac.Compile(rules), Log: s.log,
		Observe: func(operation string, took time.Duration) { s.metrics.NodeGraph(operation, took) },
	})
	s.authorization = z
	z.authorizers = authz.List{masters.Authorizer{}}
	for _, mode := range s.config.Authorization.Modes {
		authorizer, err := s.authorizerOf(mode)
		if err != nil {
			return err
		}
		z.authorizers = append(z.authorizers, authorizer)
	}
	return nil
}

func (s *Server) authorizerOf(mode string) (authz.Authorizer, error) {
	switch mode {
	case ModeAlwaysAllow:
		return always.Allow{}, nil
	case ModeAlwaysDeny:
		return always.Deny{}, nil
	case ModeRBAC:
		return s.authorization.rbac, nil
	case ModeNode:
		return s.authorization.node, nil
	}
	return nil, fmt.Errorf("authorization-mode %q is not a valid mode", mode)
}

// serveAuthorization gives the verbs what they need of it.
func (s *Server) serveAuthorization(o *rest.Options) {
	o.Authorizer = s.authorization.authorizers
	o.Answers = review.Answers(s.authorization.authorizers, s.authorization.authorizers)
}

// guardRoles keeps users from granting what they do not have.
func (z *authorization) guardRoles() admission.Plugin {
	return escalation.Plugin(z.authorizers, z.rbac)
}

// startAuthorization makes the default roles and begins to follow roles and
// bindings.
func (s *Server) startAuthorization(ctx context.Context, reg *registry.Registry, w rbaccontroller.Writer) error {
	bootstrap := rbaccontroller.Bootstrap{Registry: reg, Writer: w, Log: s.log}
	if err := bootstrap.Run(ctx); err != nil {
		return err
	}
	if err := s.authorization.rbac.Start(s.background, reg, s.log); err != nil {
		return err
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
