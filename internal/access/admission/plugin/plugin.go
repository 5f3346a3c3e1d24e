// Package plugin has all admission plug-ins in the order in which they run, and makes the chain of those that are switched on.
package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/always"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/alwayspullimages"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/antiaffinity"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/autoprovision"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/certificates"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/claimresize"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/defaultclass"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/denyexternalips"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/eventratelimit"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/extendedresourcetoleration"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/imagepolicy"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/lifecycle"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/limitranger"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/namespaceexists"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/nodefeatures"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/noderestriction"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/ownerpermissions"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/podnodeselector"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/podresize"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/podsecurity"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/podtolerationrestriction"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/podtopologylabels"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/policies"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/priority"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/protection"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/quota"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/runtimeclass"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/serviceaccount"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/taint"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/toleration"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/webhooks"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Options are the dependencies of plug-ins. A plug-in must not be switched on if a field that it needs is not set.
type Options struct {
	Config   *config.Admission
	Gates    features.Gates
	Registry *registry.Registry
	// Authorizer decides whether a user has further permissions.
	Authorizer authz.Authorizer
	Observer   admission.Observer
	// Calls are the options for calls of webhooks that are named in a kubeconfig, such as that of
	// ImagePolicyWebhook.
	Calls    webhook.Options
	Webhooks *webhooks.Plugins
	// Policies evaluates admission policies.
	Policies *policies.Plugins
	Log      *slog.Logger
	// PodSecurity counts the evaluations of the plug-in PodSecurity.
	PodSecurity podsecurity.Metrics
	// Kinds finds the resources of the owners of objects.
	Kinds ownerpermissions.Resources
	// CreateNamespace creates a namespace in the name of the server.
	CreateNamespace autoprovision.Create
	// Last are plug-ins that run after all others and cannot be switched off.
	Last []admission.Plugin
	// Load calls apply, and calls it again whenever a file that apply has read changes. If Load is nil, apply is
	// called once. If apply fails, the plug-ins in effect stay the same.
	Load func(apply func(read Read) error) error
}

// Read returns the content of a file, as os.ReadFile does.
type Read = func(path string) ([]byte, error)

// Input is the input of the constructor of a plug-in.
type Input struct {
	*Options
	// Own is the plug-in's own configuration in JSON or YAML, nil if none was given.
	Own []byte
	// Read reads the files that the configuration names.
	Read Read
	// use may be set by the constructor; it is called when the plug-in takes effect.
	use func()
}

// Plugin is one plug-in of List, with its name in --enable-admission-plugins.
type Plugin struct {
	Name string
	Off  bool // unless it is enabled by name
	Make func(in *Input) (admission.Plugin, error)
}

// List returns all plug-ins of kube-apiserver in the order in which they run.
func List() []Plugin {
	return []Plugin{
		{Name: "AlwaysAdmit", Off: true, Make: alone(always.Admit)},
		{Name: "NamespaceAutoProvision", Off: true, Make: plain(func(o *Options) admission.Plugin {
			return autoprovision.Plugin(o.Registry, o.CreateNamespace)
		})},
		{Name: "NamespaceLifecycle", Make: plain(func(o *Options) admission.Plugin {
			return lifecycle.Plugin(o.Registry)
		})},
		{Name: "NamespaceExists", Off: true, Make: plain(func(o *Options) admission.Plugin {
			return namespaceexists.Plugin(o.Registry)
		})},
		{Name: "LimitPodHardAntiAffinityTopology", Off: true, Make: alone(antiaffinity.Plugin)},
		{Name: "LimitRanger", Make: ofObjects(limitranger.Plugin)},
		{Name: "ServiceAccount", Make: ofObjects(serviceaccount.Plugin)},
		{Name: "NodeRestriction", Off: true, Make: plain(func(o *Options) admission.Plugin {
			return noderestriction.Plugin(noderestriction.Options{
				Objects: o.Registry, Authorizer: o.Authorizer, VolumeHealth: o.Gates.Enabled(features.CSIVolumeHealth),
			})
		})},
		{Name: "TaintNodesByCondition", Make: alone(taint.Plugin)},
		{Name: "AlwaysPullImages", Off: true, Make: alone(alwayspullimages.Plugin)},
		{Name: "ImagePolicyWebhook", Off: true, Make: configured(imagepolicy.DecodeConfig, imageReviews)},
		{Name: "PodSecurity", Make: configured(podsecurity.DecodeConfig, podSecurity)},
		{Name: "PodNodeSelector", Off: true, Make: configured(podnodeselector.DecodeConfig,
			func(o *Input, c podnodeselector.Config) (admission.Plugin, error) {
				return podnodeselector.Plugin(o.Registry, c), nil
			})},
		{Name: "Priority", Make: plain(func(o *Options) admission.Plugin {
			return priority.Plugin(o.Registry, o.Gates.Enabled(features.PodGroupPreemptionPolicy))
		})},
		{Name: "DefaultTolerationSeconds", Make: plain(func(o *Options) admission.Plugin {
			return toleration.Plugin(o.Config.NotReadyTolerationSeconds, o.Config.UnreachableTolerationSeconds)
		})},
		{Name: "PodTolerationRestriction", Off: true, Make: configured(podtolerationrestriction.DecodeConfig,
			func(o *Input, c podtolerationrestriction.Config) (admission.Plugin, error) {
				return podtolerationrestriction.Plugin(o.Registry, c), nil
			})},
		{Name: "EventRateLimit", Off: true, Make: configured(eventratelimit.DecodeConfig,
			func(_ *Input, c eventratelimit.Config) (admission.Plugin, error) {
				return eventratelimit.Plugin(c, time.Now), nil
			})},
		{Name: "ExtendedResourceToleration", Off: true, Make: alone(extendedresourcetoleration.Plugin)},
		{Name: "DefaultStorageClass", Make: ofObjects(defaultclass.Storage)},
		{Name: "StorageObjectInUseProtection", Make: alone(protection.Plugin)},
		// The kinds that PodGroupProtection and ClusterTrustBundleAttest check are only served with the feature
		// gates GenericWorkload and ClusterTrustBundle.
		{Name: "PodGroupProtection", Make: alone(protection.Groups)},
		{Name: "OwnerReferencesPermissionEnforcement", Off: true, Make: plain(func(o *Options) admission.Plugin {
			return ownerpermissions.Plugin(o.Authorizer, o.Kinds)
		})},
		{Name: "PersistentVolumeClaimResize", Make: ofObjects(claimresize.Plugin)},
		{Name: "RuntimeClass", Make: ofObjects(runtimeclass.Plugin)},
		{Name: "CertificateApproval", Make: ofAuthorizer(certificates.Approval)},
		{Name: "CertificateSigning", Make: ofAuthorizer(certificates.Signing)},
		{Name: "ClusterTrustBundleAttest", Make: ofAuthorizer(certificates.Attest)},
		{Name: "CertificateSubjectRestriction", Make: alone(certificates.SubjectRestriction)},
		{Name: "DefaultIngressClass", Make: ofObjects(defaultclass.Ingress)},
		{Name: "PodTopologyLabels", Make: ofGate(features.PodTopologyLabelsAdmission, ofObjects(podtopologylabels.Plugin))},
		{Name: "NodeDeclaredFeatureValidator", Make: ofObjects(nodefeatures.Plugin)},
		{Name: "PodResizeValidator", Make: ofObjects(podresize.Plugin)},
		{Name: "DenyServiceExternalIPs", Off: true, Make: alone(denyexternalips.Plugin)},
		{Name: "MutatingAdmissionPolicy", Make: ofGate(features.MutatingAdmissionPolicy,
			plain(func(o *Options) admission.Plugin { return o.Policies.Mutating() }))},
		{Name: "MutatingAdmissionWebhook", Make: configured(webhooks.DecodeConfig,
			func(o *Input, c webhooks.Config) (p admission.Plugin, err error) {
				p, o.use, err = o.Webhooks.Mutating(c, o.Read)
				return p, err
			})},
		{Name: "ValidatingAdmissionPolicy", Make: plain(func(o *Options) admission.Plugin {
			return o.Policies.Validating()
		})},
		{Name: "ValidatingAdmissionWebhook", Make: configured(webhooks.DecodeConfig,
			func(o *Input, c webhooks.Config) (p admission.Plugin, err error) {
				p, o.use, err = o.Webhooks.Validating(c, o.Read)
				return p, err
			})},
		{Name: "ResourceQuota", Make: configured(quota.DecodeConfig,
			func(o *Input, c quota.Config) (admission.Plugin, error) {
				return quota.Plugin(o.Registry, c), nil
			})},
		{Name: "AlwaysDeny", Off: true, Make: alone(always.Deny)},
	}
}

// plain adapts a plug-in that has no configuration of its own.
func plain(build func(*Options) admission.Plugin) func(*Input) (admission.Plugin, error) {
	return func(in *Input) (admission.Plugin, error) {
		if in.Own != nil {
			return admission.Plugin{}, errors.New("the plug-in has no configuration")
		}
		return build(in.Options), nil
	}
}

// ofGate adapts a plug-in that does nothing while a feature gate is off.
func ofGate(gate string, build func(*Input) (admission.Plugin, error)) func(*Input) (admission.Plugin, error) {
	return func(in *Input) (admission.Plugin, error) {
		p, err := build(in)
		if !in.Gates.Enabled(gate) {
			p.Mutate, p.Validate = nil, nil
		}
		return p, err
	}
}

// alone adapts a plug-in that needs no options.
func alone(build func() admission.Plugin) func(*Input) (admission.Plugin, error) {
	return plain(func(*Options) admission.Plugin { return build() })
}

// ofObjects adapts a plug-in that reads objects.
func ofObjects(build func(admission.Objects) admission.Plugin) func(*Input) (admission.Plugin, error) {
	return plain(func(o *Options) admission.Plugin { return build(o.Registry) })
}

// ofAuthorizer adapts a plug-in that asks for permissions.
func ofAuthorizer(build func(authz.Authorizer) admission.Plugin) func(*Input) (admission.Plugin, error) {
	return plain(func(o *Options) admission.Plugin { return build(o.Authorizer) })
}

// configured adapts a plug-in that has a configuration of its own.
func configured[C any](
	decode func([]byte) (C, error), build func(*Input, C) (admission.Plugin, error),
) func(*Input) (admission.Plugin, error) {
	return func(in *Input) (admission.Plugin, error) {
		c, err := decode(in.Own)
		if err != nil {
			return admission.Plugin{}, err
		}
		return build(in, c)
	}
}

// imageReviews returns the plug-in that sends the images of Pods to a webhook.
func imageReviews(o *Input, c imagepolicy.Config) (admission.Plugin, error) {
	return imagepolicy.Plugin(c, o.Read, o.Calls, o.Log)
}

// podSecurity returns the plug-in that compares pods with the Pod Security Standards.
func podSecurity(o *Input, c podsecurity.Config) (admission.Plugin, error) {
	return podsecurity.Plugin(c, podsecurity.Options{
		Objects: o.Registry, Metrics: o.PodSecurity, Version: "v" + release.Release{}.String(),
	})
}

// NewChain returns the chain of the plug-ins that are switched on. It fails if a name is unknown or a configuration is wrong. If
// their configuration changes, the chain is replaced: writes that have begun end with the chain that they began with.
func NewChain(o *Options) (*admission.Chain, error) {
	m := &maker{Options: o, all: List()}
	if err := validate(o.Config, m.all); err != nil {
		return nil, err
	}
	if o.Load == nil {
		err := m.apply(os.ReadFile)
		return m.chain, err
	}
	err := o.Load(m.apply)
	return m.chain, err
}

// maker makes the chain of plug-ins, and makes it again when their configuration has changed.
type maker struct {
	*Options
	all   []Plugin
	chain *admission.Chain      // made at the start; later chains replace it
	made  map[string]madePlugin // those in effect, by name
}

// madePlugin is a plug-in, with the configuration that it was made from.
type madePlugin struct {
	admission.Plugin
	config []byte
	files  bool // it has read files
}

// apply makes the plug-ins and puts them into effect. A plug-in whose configuration is the same keeps its state, such as
// the events that EventRateLimit has counted.
func (m *maker) apply(read Read) error {
	configs, err := ReadConfig(m.Config.ConfigFile, read, m.all)
	if err != nil {
		return err
	}
	var chain []admission.Plugin
	var use []func()
	made := map[string]madePlugin{}
	for i := range m.all {
		p := &m.all[i]
		if !enables(m.Config, p) {
			continue
		}
		now := madePlugin{config: configs[p.Name]}
		if before, ok := m.made[p.Name]; ok && !before.files && bytes.Equal(before.config, now.config) {
			now = before
		} else {
			in := &Input{Options: m.Options, Own: now.config}
			in.Read = func(path string) ([]byte, error) {
				now.files = true
				return read(path)
			}
			if now.Plugin, err = p.Make(in); err != nil {
				return fmt.Errorf("admission plug-in %s: %w", p.Name, err)
			}
			if in.use != nil {
				use = append(use, in.use)
			}
		}
		made[p.Name] = now
		chain = append(chain, now.Plugin)
	}
	for _, f := range use {
		f()
	}
	m.made = made
	next := admission.NewChain(m.Observer, append(chain, m.Last...)...)
	if m.chain == nil {
		m.chain = next
	} else {
		m.chain.Replace(next)
	}
	return nil
}

// enables reports whether a plug-in is switched on.
func enables(c *config.Admission, p *Plugin) bool {
	switch {
	case c.Only != nil:
		return slices.Contains(c.Only, p.Name)
	case p.Off:
		return slices.Contains(c.Enable, p.Name)
	}
	return !slices.Contains(c.Disable, p.Name)
}

// validate checks the names of plug-ins.
func validate(c *config.Admission, all []Plugin) error {
	var errs []error
	if c.Only != nil && len(c.Enable)+len(c.Disable) > 0 {
		errs = append(errs, config.Errorf("{Admission.Only} excludes {Admission.Enable} and {Admission.Disable}").OnCommandLine(
			"admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"))
	}
	known := func(field string, names []string) {
		for _, name := range names {
			if !slices.ContainsFunc(all, func(p Plugin) bool { return p.Name == name }) {
				errs = append(errs, config.Errorf("{%s}: plug-in %q is unknown", field, name).
					OnCommandLine("%s plugin %q is unknown", config.Flag(field), name))
			}
		}
	}
	known("Admission.Only", c.Only)
	known("Admission.Enable", c.Enable)
	known("Admission.Disable", c.Disable)
	var overlap []string
	for _, name := range c.Enable {
		if slices.Contains(c.Disable, name) && !slices.Contains(overlap, name) {
			overlap = append(overlap, name)
		}
	}
	if slices.Sort(overlap); len(overlap) > 0 {
		errs = append(errs, config.Errorf("%v in {Admission.Enable} and {Admission.Disable} overlap", overlap).
			OnCommandLine("%v in enable-admission-plugins and disable-admission-plugins overlapped", overlap))
	}
	return errors.Join(errs...)
}
