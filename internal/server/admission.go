package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// admissionOptions are the dependencies of admission plug-ins.
type admissionOptions struct {
	config   *config.Admission
	gates    features.Gates
	registry *registry.Registry
	// authorizer decides whether a user has further permissions.
	authorizer authz.Authorizer
	observer   admission.Observer
	// calls are how webhooks outside the cluster are called.
	calls    webhook.Options
	webhooks *webhooks.Plugins
	// policies evaluates admission policies.
	policies *policies.Plugins
	log      *slog.Logger
	// podSecurity counts what PodSecurity does.
	podSecurity podsecurity.Metrics
	// kinds finds the resources of the owners of objects.
	kinds ownerpermissions.Resources
	// createNamespace creates a namespace in the name of the server.
	createNamespace autoprovision.Create
	// last are plug-ins behind all others, which cannot be switched off.
	last  []admission.Plugin
	files *reload.Files
}

// pluginInput is the input of the constructor of a plug-in.
type pluginInput struct {
	*admissionOptions
	// config is the plug-in's own configuration in JSON or YAML, nil if none was given.
	config []byte
	// read reads the files that the configuration names.
	read filewatch.Read
	// use may be set by the constructor; it is called when the plug-in takes effect.
	use func()
}

// admissionPlugin is a plug-in by its name in --enable-admission-plugins.
type admissionPlugin struct {
	name string
	off  bool // unless it is enabled by name
	make func(in *pluginInput) (admission.Plugin, error)
}

// admissionPlugins returns all plug-ins of kube-apiserver in the order in which they run.
func admissionPlugins() []admissionPlugin {
	return []admissionPlugin{
		{name: "AlwaysAdmit", off: true, make: alone(always.Admit)},
		{name: "NamespaceAutoProvision", off: true, make: plain(func(o *admissionOptions) admission.Plugin {
			return autoprovision.Plugin(o.registry, o.createNamespace)
		})},
		{name: "NamespaceLifecycle", make: plain(func(o *admissionOptions) admission.Plugin {
			return lifecycle.Plugin(o.registry)
		})},
		{name: "NamespaceExists", off: true, make: plain(func(o *admissionOptions) admission.Plugin {
			return namespaceexists.Plugin(o.registry)
		})},
		{name: "LimitPodHardAntiAffinityTopology", off: true, make: alone(antiaffinity.Plugin)},
		{name: "LimitRanger", make: ofObjects(limitranger.Plugin)},
		{name: "ServiceAccount", make: ofObjects(serviceaccount.Plugin)},
		{name: "NodeRestriction", off: true, make: plain(func(o *admissionOptions) admission.Plugin {
			return noderestriction.Plugin(noderestriction.Options{
				Objects: o.registry, Authorizer: o.authorizer, VolumeHealth: o.gates.Enabled(features.CSIVolumeHealth),
			})
		})},
		{name: "TaintNodesByCondition", make: alone(taint.Plugin)},
		{name: "AlwaysPullImages", off: true, make: alone(alwayspullimages.Plugin)},
		{name: "ImagePolicyWebhook", off: true, make: configured(imagepolicy.DecodeConfig, imageReviews)},
		{name: "PodSecurity", make: configured(podsecurity.DecodeConfig, podSecurity)},
		{name: "PodNodeSelector", off: true, make: configured(podnodeselector.DecodeConfig,
			func(o *pluginInput, c podnodeselector.Config) (admission.Plugin, error) {
				return podnodeselector.Plugin(o.registry, c), nil
			})},
		{name: "Priority", make: plain(func(o *admissionOptions) admission.Plugin {
			return priority.Plugin(o.registry, o.gates.Enabled(features.PodGroupPreemptionPolicy))
		})},
		{name: "DefaultTolerationSeconds", make: plain(func(o *admissionOptions) admission.Plugin {
			return toleration.Plugin(o.config.NotReadyTolerationSeconds, o.config.UnreachableTolerationSeconds)
		})},
		{name: "PodTolerationRestriction", off: true, make: configured(podtolerationrestriction.DecodeConfig,
			func(o *pluginInput, c podtolerationrestriction.Config) (admission.Plugin, error) {
				return podtolerationrestriction.Plugin(o.registry, c), nil
			})},
		{name: "EventRateLimit", off: true, make: configured(eventratelimit.DecodeConfig,
			func(_ *pluginInput, c eventratelimit.Config) (admission.Plugin, error) {
				return eventratelimit.Plugin(c, time.Now), nil
			})},
		{name: "ExtendedResourceToleration", off: true, make: alone(extendedresourcetoleration.Plugin)},
		{name: "DefaultStorageClass", make: ofObjects(defaultclass.Storage)},
		{name: "StorageObjectInUseProtection", make: alone(protection.Plugin)},
		// The kinds of these are only served with the feature gates GenericWorkload and ClusterTrustBundle.
		{name: "PodGroupProtection", make: alone(protection.Groups)},
		{name: "OwnerReferencesPermissionEnforcement", off: true, make: plain(func(o *admissionOptions) admission.Plugin {
			return ownerpermissions.Plugin(o.authorizer, o.kinds)
		})},
		{name: "PersistentVolumeClaimResize", make: ofObjects(claimresize.Plugin)},
		{name: "RuntimeClass", make: ofObjects(runtimeclass.Plugin)},
		{name: "CertificateApproval", make: ofAuthorizer(certificates.Approval)},
		{name: "CertificateSigning", make: ofAuthorizer(certificates.Signing)},
		{name: "ClusterTrustBundleAttest", make: ofAuthorizer(certificates.Attest)},
		{name: "CertificateSubjectRestriction", make: alone(certificates.SubjectRestriction)},
		{name: "DefaultIngressClass", make: ofObjects(defaultclass.Ingress)},
		{name: "PodTopologyLabels", make: ofGate(features.PodTopologyLabelsAdmission, ofObjects(podtopologylabels.Plugin))},
		{name: "NodeDeclaredFeatureValidator", make: ofObjects(nodefeatures.Plugin)},
		{name: "PodResizeValidator", make: ofObjects(podresize.Plugin)},
		{name: "DenyServiceExternalIPs", off: true, make: alone(denyexternalips.Plugin)},
		{name: "MutatingAdmissionPolicy", make: ofGate(features.MutatingAdmissionPolicy,
			plain(func(o *admissionOptions) admission.Plugin { return o.policies.Mutating() }))},
		{name: "MutatingAdmissionWebhook", make: configured(webhooks.DecodeConfig,
			func(o *pluginInput, c webhooks.Config) (p admission.Plugin, err error) {
				p, o.use, err = o.webhooks.Mutating(c, o.read)
				return p, err
			})},
		{name: "ValidatingAdmissionPolicy", make: plain(func(o *admissionOptions) admission.Plugin {
			return o.policies.Validating()
		})},
		{name: "ValidatingAdmissionWebhook", make: configured(webhooks.DecodeConfig,
			func(o *pluginInput, c webhooks.Config) (p admission.Plugin, err error) {
				p, o.use, err = o.webhooks.Validating(c, o.read)
				return p, err
			})},
		{name: "ResourceQuota", make: configured(quota.DecodeConfig,
			func(o *pluginInput, c quota.Config) (admission.Plugin, error) {
				return quota.Plugin(o.registry, c), nil
			})},
		{name: "AlwaysDeny", off: true, make: alone(always.Deny)},
	}
}

// plain adapts a plug-in that has no configuration of its own.
func plain(build func(*admissionOptions) admission.Plugin) func(*pluginInput) (admission.Plugin, error) {
	return func(in *pluginInput) (admission.Plugin, error) {
		if in.config != nil {
			return admission.Plugin{}, errors.New("the plug-in has no configuration")
		}
		return build(in.admissionOptions), nil
	}
}

// ofGate adapts a plug-in that does nothing while a feature gate is off.
func ofGate(gate string, build func(*pluginInput) (admission.Plugin, error)) func(*pluginInput) (admission.Plugin, error) {
	return func(in *pluginInput) (admission.Plugin, error) {
		p, err := build(in)
		if !in.gates.Enabled(gate) {
			p.Mutate, p.Validate = nil, nil
		}
		return p, err
	}
}

// alone adapts a plug-in that needs nothing.
func alone(build func() admission.Plugin) func(*pluginInput) (admission.Plugin, error) {
	return plain(func(*admissionOptions) admission.Plugin { return build() })
}

// ofObjects adapts a plug-in that reads objects.
func ofObjects(build func(admission.Objects) admission.Plugin) func(*pluginInput) (admission.Plugin, error) {
	return plain(func(o *admissionOptions) admission.Plugin { return build(o.registry) })
}

// ofAuthorizer adapts a plug-in that asks for permissions.
func ofAuthorizer(build func(authz.Authorizer) admission.Plugin) func(*pluginInput) (admission.Plugin, error) {
	return plain(func(o *admissionOptions) admission.Plugin { return build(o.authorizer) })
}

// configured adapts a plug-in that has a configuration of its own.
func configured[C any](
	decode func([]byte) (C, error), build func(*pluginInput, C) (admission.Plugin, error),
) func(*pluginInput) (admission.Plugin, error) {
	return func(in *pluginInput) (admission.Plugin, error) {
		c, err := decode(in.config)
		if err != nil {
			return admission.Plugin{}, err
		}
		return build(in, c)
	}
}

// imageReviews returns the plug-in that sends the images of Pods to a webhook.
func imageReviews(o *pluginInput, c imagepolicy.Config) (admission.Plugin, error) {
	return imagepolicy.Plugin(c, o.read, o.calls, o.log)
}

// podSecurity returns the plug-in that compares pods with the Pod Security Standards.
func podSecurity(o *pluginInput, c podsecurity.Config) (admission.Plugin, error) {
	return podsecurity.Plugin(c, podsecurity.Options{
		Objects: o.registry, Metrics: o.podSecurity, Version: "v" + release.Release{}.String(),
	})
}

// newAdmission returns the chain of the plug-ins that are switched on. If their configuration changes, the chain is
// replaced: writes that have begun end with the chain that they began with.
func newAdmission(o *admissionOptions) (*admission.Chain, error) {
	m := &admissionMaker{admissionOptions: o, all: admissionPlugins()}
	if err := validateAdmission(o.config, m.all); err != nil {
		return nil, err
	}
	if o.config.ConfigFile == "" {
		err := m.apply(filewatch.ReadFile)
		return m.chain, err
	}
	_, err := o.files.Load(reload.Part{Flag: "--admission-control-config-file", Path: o.config.ConfigFile, Apply: m.apply})
	return m.chain, err
}

// admissionMaker makes the chain of plug-ins, and makes it again when their configuration has changed.
type admissionMaker struct {
	*admissionOptions
	all   []admissionPlugin
	chain *admission.Chain      // of the start
	made  map[string]madePlugin // those in effect, by name
}

// madePlugin is a plug-in with what it was made from.
type madePlugin struct {
	admission.Plugin
	config []byte
	files  bool // it has read files
}

// apply makes the plug-ins and puts them into effect. A plug-in whose configuration is the same keeps its state, such as
// the events that EventRateLimit has counted.
func (m *admissionMaker) apply(read filewatch.Read) error {
	configs, err := readAdmissionConfig(m.config.ConfigFile, read, m.all)
	if err != nil {
		return err
	}
	var chain []admission.Plugin
	var use []func()
	made := map[string]madePlugin{}
	for i := range m.all {
		p := &m.all[i]
		if !enables(m.config, p) {
			continue
		}
		now := madePlugin{config: configs[p.name]}
		if before, ok := m.made[p.name]; ok && !before.files && bytes.Equal(before.config, now.config) {
			now = before
		} else {
			in := &pluginInput{admissionOptions: m.admissionOptions, config: now.config}
			in.read = func(path string) ([]byte, error) {
				now.files = true
				return read(path)
			}
			if now.Plugin, err = p.make(in); err != nil {
				return fmt.Errorf("admission plug-in %s: %w", p.name, err)
			}
			if in.use != nil {
				use = append(use, in.use)
			}
		}
		made[p.name] = now
		chain = append(chain, now.Plugin)
	}
	for _, f := range use {
		f()
	}
	m.made = made
	next := admission.NewChain(m.observer, append(chain, m.last...)...)
	if m.chain == nil {
		m.chain = next
	} else {
		m.chain.Replace(next)
	}
	return nil
}

// enables reports whether a plug-in is switched on.
func enables(c *config.Admission, p *admissionPlugin) bool {
	switch {
	case c.Only != nil:
		return slices.Contains(c.Only, p.name)
	case p.off:
		return slices.Contains(c.Enable, p.name)
	}
	return !slices.Contains(c.Disable, p.name)
}

// validateAdmission checks the names of plug-ins.
func validateAdmission(c *config.Admission, all []admissionPlugin) error {
	var errs []error
	if c.Only != nil && len(c.Enable)+len(c.Disable) > 0 {
		errs = append(errs, config.Errorf("{Admission.Only} excludes {Admission.Enable} and {Admission.Disable}").OnCommandLine(
			"admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"))
	}
	known := func(field string, names []string) {
		for _, name := range names {
			if !slices.ContainsFunc(all, func(p admissionPlugin) bool { return p.name == name }) {
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
