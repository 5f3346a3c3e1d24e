// Package webhooks calls webhooks that change and check writes (MutatingAdmissionWebhook, ValidatingAdmissionWebhook).
// MutatingWebhookConfigurations and ValidatingWebhookConfigurations declare them. Changes take effect with the next
// write: a webhook whose configuration was acknowledged is called for every write that begins afterwards.
//
// The webhooks of a write are called in the order of the names of their configurations, and of the list in each.
// Mutating ones are called one after the other, each with the result of the previous one; validating ones are called
// concurrently. After a change the mutating pass of admission runs a second time, in which earlier webhooks with the
// reinvocationPolicy IfNeeded are called again.
//
// A webhook with failurePolicy Ignore that keeps failing can be skipped for a while (Options.Budget), so that not every
// write waits for its time-out.
//
// Files: configurations.go follows the configurations, hook.go decides whether a webhook is called, call.go calls it
// and checks the response, budget.go decides whether a failing one is skipped, failing.go remembers which ones fail,
// mutating.go and validating.go are the two plug-ins.
package webhooks

import (
	"context"
	"log/slog"
	"time"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/match"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

// Versions converts objects to and from the versions that webhooks ask for.
type Versions interface {
	match.Resources
	// Convert returns an object of a write in the version of names; it must not be changed.
	Convert(ctx context.Context, a *admission.Attributes, obj registry.Object, names admission.Names) (registry.Object, error)
	// Document returns an object of a write as JSON in the version of names, nil for no object.
	Document(ctx context.Context, a *admission.Attributes, obj registry.Object, names admission.Names) ([]byte, error)
	// Replace replaces a.Object by the object in a JSON document in the version of names. Unknown and duplicate
	// fields are errors if strict is set.
	Replace(ctx context.Context, a *admission.Attributes, document []byte, names admission.Names, strict bool) error
}

// Options are the dependencies of both plug-ins.
type Options struct {
	Registry *registry.Registry
	Versions Versions
	// Calls are the options of the clients of webhooks.
	Calls webhook.Options
	// Authorizer answers the questions of match conditions.
	Authorizer authz.Authorizer
	// Background runs the goroutines that follow the configurations.
	Background informer.Background
	// Budget limits the total duration of failing calls of one webhook with failurePolicy Ignore in a minute. Beyond it
	// the webhook is skipped for a while. 0 means that no webhook is skipped.
	Budget time.Duration
	// ExcludeReviews keeps webhooks away from the writes that match.Reviews reports (the gate
	// ExcludeAdmissionWebhookVirtualResources).
	ExcludeReviews bool
	// Now is the clock of the budgets; nil means time.Now.
	Now     func() time.Time
	Metrics *Metrics
	Log     *slog.Logger
}

// mutatingResource and validatingResource are the resources of the two kinds of configurations.
const mutatingResource, validatingResource = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"

// Plugins has the two plug-ins. They admit everything until Start.
type Plugins struct {
	o                    *Options
	matcher              *match.Matcher
	mutating, validating configurations
}

// New returns the plug-ins.
func New(o Options) *Plugins {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Plugins{o: &o, matcher: match.NewMatcher(o.Registry, o.Versions, match.FromWebhooks)}
	p.mutating.compile, p.validating.compile = p.mutatingHooks, p.validatingHooks
	return p
}

// Start loads the configurations and follows them in the background. It is called once, before requests are served.
func (p *Plugins) Start(ctx context.Context) error {
	for _, of := range []struct {
		name string
		c    *configurations
	}{{mutatingResource, &p.mutating}, {validatingResource, &p.validating}} {
		if of.c.clients == nil { // the plug-in is switched off
			continue
		}
		followed, err := informer.Start(ctx, p.o.Background, "admission: ", informer.Options{
			Resource: p.o.Registry.Resource(group.WithResource(of.name).GroupResource()),
			Reset:    of.c.reset, Apply: of.c.apply, Log: p.o.Log,
		})
		if err != nil {
			return err
		}
		of.c.informer.Store(followed[0])
	}
	return nil
}

// Mutating returns the plug-in MutatingAdmissionWebhook. The configuration takes effect when use is called. The
// first one has to take effect before Start, later ones may do so at any time. read reads files, as os.ReadFile
// does.
func (p *Plugins) Mutating(c Config, read func(string) ([]byte, error)) (plugin admission.Plugin, use func(), err error) {
	use, err = p.configure(&p.mutating, c, read)
	return admission.Plugin{Name: "MutatingAdmissionWebhook", Mutate: p.mutate}, use, err
}

// Validating returns the plug-in ValidatingAdmissionWebhook, as Mutating does.
func (p *Plugins) Validating(c Config, read func(string) ([]byte, error)) (plugin admission.Plugin, use func(), err error) {
	use, err = p.configure(&p.validating, c, read)
	return admission.Plugin{Name: "ValidatingAdmissionWebhook", Validate: p.validate}, use, err
}
