// Package authorization connects the authorizers of a configuration, and replaces them when its files change.
package authorization

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/certificates"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/escalation"
	"github.com/keelson-dev/keelson/internal/access/auth/abac"
	"github.com/keelson-dev/keelson/internal/access/auth/accessreview"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/access/auth/authzconfig"
	"github.com/keelson-dev/keelson/internal/access/auth/node"
	"github.com/keelson-dev/keelson/internal/access/auth/rbac"
	"github.com/keelson-dev/keelson/internal/access/auth/rbac/policy"
	"github.com/keelson-dev/keelson/internal/access/auth/staticauthorizer"
	"github.com/keelson-dev/keelson/internal/access/auth/webhookauthorizer"
	"github.com/keelson-dev/keelson/internal/api/client"
	rbaccontroller "github.com/keelson-dev/keelson/internal/controller/rbac"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// Authorization authorizes requests by the current configuration. It implements authz.Authorizer.
type Authorization struct {
	Options
	rbac *rbac.Authorizer
	// node and abac are nil unless the configuration at the start enabled them.
	node *node.Authorizer
	abac *abac.Policies
	// paths allows some paths to every user. It is nil if no paths are configured.
	paths   *staticauthorizer.AlwaysAllowPaths
	current atomic.Pointer[authz.List]
	// content is the content of the configuration file, nil without one. required are the types of authorizers that a
	// changed file must still have; nil before the first one is in effect.
	content  []byte
	required []string

	counts       *authz.Metrics
	webhookCalls *webhookauthorizer.Metrics
	graphChanged func(operation string, took time.Duration)
}

// Options are the dependencies of Authorization.
type Options struct {
	Config   *config.Authorization
	Files    *reload.Files
	Gates    features.Gates
	HostPort string // where the server is reached
	Registry *registry.Registry
	Calls    webhook.Options // for webhooks outside the cluster
	Metrics  *metrics.Metrics
	// Work runs the background tasks of the authorizers.
	Work *background.Group
	Log  *slog.Logger
}

// Authorize implements authz.Authorizer.
func (au *Authorization) Authorize(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
	return au.current.Load().Authorize(ctx, a)
}

// RulesFor implements authz.RuleResolver.
func (au *Authorization) RulesFor(ctx context.Context, u *request.User, namespace string) (authz.Rules, error) {
	return au.current.Load().RulesFor(ctx, u, namespace)
}

// New creates the authorizers. They have no objects until Start is called.
func New(o Options) (*Authorization, error) {
	c := o.Config
	z := &Authorization{
		Options: o, rbac: rbac.New(), counts: authz.NewMetrics(o.Metrics),
		graphChanged: node.NewMetrics(o.Metrics), webhookCalls: webhookauthorizer.NewMetrics(o.Metrics),
	}
	var err error
	if z.paths, err = staticauthorizer.NewAlwaysAllowPaths(c.AlwaysAllowPaths); err != nil {
		return nil, config.Errorf("{Authorization.AlwaysAllowPaths}: %w", err)
	}
	switch {
	case c.ConfigFile != "":
		server := reload.Hash([]byte(z.HostPort))
		_, err = z.Files.Load(reload.Part{
			Flag: "--authorization-config", Path: c.ConfigFile, Apply: z.use,
			Observe: func(err error) { z.counts.Reloaded(err == nil, server, reload.Hash(z.content)) },
		})
		z.counts.Loaded(server, reload.Hash(z.content))
	case c.Webhook.ConfigFile != "":
		_, err = z.Files.Load(reload.Part{Flag: "--authorization-webhook-config-file", Path: c.Webhook.ConfigFile, Apply: z.use})
	default:
		err = z.use(filewatch.ReadFile)
	}
	return z, err
}

// use applies the configuration at the start and, if its files have changed, later.
func (au *Authorization) use(read filewatch.Read) error {
	c, content, err := loadAuthorization(au.Config, read, au.required)
	if err != nil {
		return err
	}
	if au.required == nil {
		if err := au.makeAuthorizers(c); err != nil {
			return err
		}
	}
	list, err := au.authorizersOf(c, read)
	if err != nil {
		return err
	}
	au.current.Store(&list)
	au.content = content
	if au.required == nil {
		au.required = []string{}
		for _, a := range c.Authorizers {
			if a.Type != config.ModeWebhook {
				au.required = append(au.required, a.Type)
			}
		}
	}
	return nil
}

// makeAuthorizers makes the authorizers that are made once, at the start.
func (au *Authorization) makeAuthorizers(c *apiserver.AuthorizationConfiguration) (err error) {
	for _, a := range c.Authorizers {
		switch a.Type {
		case config.ModeNode:
			err = au.makeNodeAuthorizer()
		case config.ModeABAC:
			err = au.readPolicies()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readPolicies reads the file of mode ABAC.
func (au *Authorization) readPolicies() error {
	const flag = "--authorization-policy-file"
	path := au.Config.PolicyFile
	au.abac = &abac.Policies{}
	return au.Files.File(flag, path, func(content []byte) error {
		if err := au.abac.Replace(content); err != nil {
			return fmt.Errorf("error reading policy file %s, %w", path, err)
		}
		return nil
	})
}

// loadAuthorization returns the configuration, and the content of its file if there is one.
// required are the types of authorizers that it must have.
func loadAuthorization(
	c *config.Authorization, read filewatch.Read, required []string,
) (*apiserver.AuthorizationConfiguration, []byte, error) {
	if c.ConfigFile == "" {
		return ofModes(c), nil, nil
	}
	content, err := read(c.ConfigFile)
	if err != nil {
		return nil, nil, config.Errorf("{Authorization.ConfigFile}: %w", err)
	}
	configuration, err := authzconfig.Load(content, required)
	if err != nil {
		return nil, nil, config.Errorf("{Authorization.ConfigFile}: %w", err)
	}
	return configuration, content, nil
}

func (au *Authorization) makeNodeAuthorizer() error {
	rules, err := policy.NodeRules(au.Gates)
	if err != nil {
		return err
	}
	au.node = node.New(au.Work.Context(), node.Options{
		Registry: au.Registry, Rules: rbac.Compile(rules), Log: au.Log, Observe: au.graphChanged,
		Background: au.background,
	})
	return nil
}

// authorizersOf returns the authorizers of a configuration in the order of their calls.
func (au *Authorization) authorizersOf(
	c *apiserver.AuthorizationConfiguration, read filewatch.Read,
) (authz.List, error) {
	list := authz.List{staticauthorizer.SystemMasters{}}
	if au.paths != nil {
		list = append(list, au.paths)
	}
	for i := range c.Authorizers {
		a := &c.Authorizers[i]
		authorizer, err := au.authorizerOf(a, read)
		if err != nil {
			return nil, err
		}
		list = append(list, &counted{Authorizer: authorizer, counts: au.counts, kind: a.Type, name: a.Name})
	}
	return list, nil
}

func (au *Authorization) authorizerOf(a *apiserver.AuthorizerConfiguration, read filewatch.Read) (authz.Authorizer, error) {
	switch a.Type {
	case config.ModeAlwaysAllow:
		return staticauthorizer.AlwaysAllow{}, nil
	case config.ModeAlwaysDeny:
		return staticauthorizer.AlwaysDeny{}, nil
	case config.ModeRBAC:
		return au.rbac, nil
	case config.ModeNode:
		if au.node == nil {
			return nil, errNotAtStart(a.Type)
		}
		return au.node, nil
	case config.ModeABAC:
		if au.abac == nil {
			return nil, errNotAtStart(a.Type)
		}
		return au.abac, nil
	case config.ModeWebhook:
		return au.accessWebhook(a.Name, a.Webhook, read)
	}
	return nil, fmt.Errorf("unknown authorization mode %s specified", a.Type)
}

func (au *Authorization) accessWebhook(
	name string, w *apiserver.WebhookConfiguration, read filewatch.Read,
) (authz.Authorizer, error) {
	file, err := authzconfig.Kubeconfig(w)
	if err != nil {
		return nil, err
	}
	client, err := webhook.FromKubeconfig(file, read, au.Calls)
	if err != nil {
		return nil, fmt.Errorf("authorization webhook %s: %w", name, err)
	}
	conditions, errs := authzconfig.Conditions(w, nil)
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	o := webhookauthorizer.Options{
		Name: name, Client: client, Version: w.SubjectAccessReviewVersion, Timeout: w.Timeout.Duration,
		Backoff: webhook.DefaultBackoff(), Conditions: conditions, Observe: au.webhookCalls,
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
	return webhookauthorizer.New(o)
}

// counted counts the decisions of an authorizer. If the authorizer has no opinion, it adds the authorizer's name
// to the reason.
type counted struct {
	authz.Authorizer
	counts     *authz.Metrics
	kind, name string

	once            sync.Once // creates the series at the first decision
	allowed, denied prometheus.Counter
}

// Authorize implements authz.Authorizer.
func (c *counted) Authorize(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
	decision, reason, err := c.Authorizer.Authorize(ctx, a)
	if decision == authz.NoOpinion {
		if reason != "" {
			reason = c.name + ": " + reason
		}
		return decision, reason, err
	}
	c.once.Do(func() {
		c.allowed = c.counts.Decision(c.kind, c.name, "allowed")
		c.denied = c.counts.Decision(c.kind, c.name, "denied")
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

// Answers returns the synthesized resources about permissions, such as SubjectAccessReview.
func (au *Authorization) Answers() map[schema.GroupResource]registry.CreateFunc {
	return accessreview.CreateFuncs(au, au)
}

// GuardRoles prevents users from granting permissions that they do not have.
func (au *Authorization) GuardRoles() admission.Plugin { return escalation.Plugin(au, au.rbac) }

// GuardSigners prevents users from issuing certificates to pods in the name of signers that they may not sign for.
func (au *Authorization) GuardSigners() admission.Plugin { return certificates.PodSigning(au) }

// background runs a function until the server stops.
func (au *Authorization) background(name string, run func(ctx context.Context)) {
	au.Work.Go(name, background.Forever(run))
}

// Start creates the default roles, unless they were just created, and starts to watch roles and bindings.
func (au *Authorization) Start(ctx context.Context, c *client.Client, rolesExist bool) error {
	if !rolesExist {
		bootstrap := rbaccontroller.Bootstrap{Gates: au.Gates, Registry: au.Registry, Client: c, Log: au.Log}
		if err := bootstrap.Run(ctx); err != nil {
			return err
		}
	}
	return au.rbac.Start(au.Work.Context(), au.Registry, au.Log, au.background)
}
