// Package runtimeconfig implements --runtime-config, which selects the built-in versions and resources that are served.
package runtimeconfig

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// The keys of settings for all versions of a maturity.
const (
	all   = "api/all"
	ga    = "api/ga"
	beta  = "api/beta"
	alpha = "api/alpha"
)

// The names of versions by maturity.
var (
	gaVersion    = regexp.MustCompile(`^v\d+$`)
	betaVersion  = regexp.MustCompile(`^v\d+beta\d+$`)
	alphaVersion = regexp.MustCompile(`^v\d+alpha\d+$`)
)

// maturity is a setting for all versions whose names match.
type maturity struct {
	key     string
	matches func(version string) bool
}

// maturities returns the settings for a maturity in the order in which they are applied. If several match a
// version, the last one is used.
func maturities() []maturity {
	return []maturity{
		{all, func(string) bool { return true }},
		{ga, gaVersion.MatchString},
		{beta, betaVersion.MatchString},
		{alpha, alphaVersion.MatchString},
	}
}

// Compatibility defines whether versions are served that are newer than the emulated release.
type Compatibility struct {
	Release release.Release
	// Later serves newer versions of those beta and stable resources that are served anyway.
	Later bool
	// LaterNamed serves newer versions that the settings name. Without it, such a setting is an error.
	LaterNamed bool
}

// Config selects the versions and resources that are served.
type Config struct {
	compatibility Compatibility

	values    map[string]string // of the settings for maturities
	versions  map[schema.GroupVersion]bool
	resources map[schema.GroupVersionResource]bool
}

// Parse parses values of the format GROUP/VERSION=true or api/beta=true. The last value of a key counts. Its errors are
// those of kube-apiserver. It also fails if the core group is off, for which kube-apiserver panics.
func Parse(values []string, compatibility Compatibility) (*Config, error) {
	c, err := parse(values)
	if err != nil {
		return nil, config.Errorf("{API.RuntimeConfig}: %w", err).OnCommandLine("%s", config.CommandLine(err))
	}
	c.compatibility = compatibility
	return c, nil
}

func parse(values []string) (*Config, error) {
	settings := split(values)
	c := &Config{
		values: map[string]string{}, versions: map[schema.GroupVersion]bool{},
		resources: map[schema.GroupVersionResource]bool{},
	}
	if err := c.checkFlowControl(settings); err != nil {
		return nil, err
	}
	if settings[all] == "false" && len(settings) == 1 {
		return nil, fmt.Errorf("invalid runtime-config with only %s=false", all)
	}
	for _, m := range maturities() {
		if value, ok := settings[m.key]; ok {
			c.values[m.key] = value
			delete(settings, m.key)
		}
	}
	keys, err := parseKeys(settings)
	if err != nil {
		return nil, err
	}
	for _, m := range maturities() {
		if value, ok := c.values[m.key]; ok && value != "true" && value != "false" {
			return nil, fmt.Errorf("invalid value %s=%s", m.key, value)
		}
	}
	for _, k := range keys {
		if err := c.set(k); err != nil {
			return nil, err
		}
	}
	if !c.Enabled(schema.GroupVersionResource{Version: "v1"}) {
		return nil, config.Errorf("v1, the core group, is switched off, which the server cannot do without").
			OnCommandLine("--runtime-config switches off v1, the core group, which the server cannot do without")
	}
	return c, nil
}

// split returns the settings by their keys. The version of the core group has the key /v1.
func split(values []string) map[string]string {
	settings := map[string]string{}
	for _, list := range values {
		for item := range strings.SplitSeq(list, ",") {
			if item == "" {
				continue
			}
			key, value, _ := strings.Cut(item, "=")
			key = strings.TrimSpace(key)
			if key == "v1" || key == "api/v1" || strings.HasPrefix(key, "v1/") || strings.HasPrefix(key, "api/v1/") {
				key = "/v1"
			}
			settings[key] = strings.TrimSpace(value)
		}
	}
	delete(settings, "api/legacy")
	return settings
}

// checkFlowControl refuses to switch off the group of API Priority and Fairness, which kube-apiserver needs by default.
func (c *Config) checkFlowControl(settings map[string]string) error {
	for _, key := range []string{"flowcontrol.apiserver.k8s.io/v1", ga, all} { // the first that is set counts
		switch settings[key] {
		case "false":
			return config.Errorf("%s=false conflicts with {Requests.NoPriorityAndFairness}, which is not set", key).
				OnCommandLine("--runtime-config=%s=false conflicts with --enable-priority-and-fairness=true", key)
		case "true":
			return nil
		}
	}
	return nil
}

// setting is the value of a version or of a resource in it.
type setting struct {
	key, value string
	gv         schema.GroupVersion
	resource   string // empty for a setting of the version
}

// parseKeys returns the settings of versions and resources, sorted by key. It fails if the group of one does not exist.
func parseKeys(settings map[string]string) ([]setting, error) {
	groups := map[string]bool{}
	for _, gv := range knownVersions() {
		groups[gv.Group] = true
	}
	var out []setting
	unknown := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		words := strings.Split(key, "/")
		const versionWords, resourceWords = 2, 3
		if len(words) != versionWords && len(words) != resourceWords {
			return nil, fmt.Errorf("runtime-config invalid key %s", key)
		}
		s := setting{key: key, value: settings[key], gv: schema.GroupVersion{Group: words[0], Version: words[1]}}
		if len(words) == resourceWords {
			s.resource = words[2]
		}
		if !groups[s.gv.Group] {
			unknown[s.gv.String()] = true
		}
		out = append(out, s)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown api groups %s", strings.Join(slices.Sorted(maps.Keys(unknown)), ","))
	}
	return out, nil
}

// set adds the setting of a version or a resource.
func (c *Config) set(s setting) error {
	if !slices.Contains(knownVersions(), s.gv) {
		return fmt.Errorf("group version %s that has not been registered", s.gv)
	}
	enabled := true // an empty value means true
	if s.value != "" {
		var err error
		if enabled, err = strconv.ParseBool(s.value); err != nil {
			return fmt.Errorf("invalid value of %s: %s, err: %v", s.key, s.value, err)
		}
	}
	switch {
	case strings.ToLower(s.resource) != s.resource:
		return fmt.Errorf("invalid key %s: group/version/resource and resource is always lowercase plural, not %q",
			s.key, s.resource)
	case s.resource == "":
		c.versions[s.gv] = enabled
	default:
		c.resources[s.gv.WithResource(s.resource)] = enabled
	}
	return nil
}

// knownVersions returns all versions that kube-apiserver knows, whether it can serve them or not, and Keelson's own.
func knownVersions() []schema.GroupVersion {
	return append(scheme.KnownVersions(),
		schema.GroupVersion{Group: "admission.k8s.io", Version: "v1"},
		schema.GroupVersion{Group: "admission.k8s.io", Version: "v1beta1"},
		schema.GroupVersion{Group: "imagepolicy.k8s.io", Version: "v1alpha1"},
		schema.GroupVersion{Group: request.HiddenGroup, Version: request.HiddenVersion})
}

// Enabled reports whether a resource is served in a version. The setting of the resource has priority over the setting of the
// version, which has priority over the settings of maturities (such as api/beta). By default only GA versions are served.
func (c *Config) Enabled(gvr schema.GroupVersionResource) bool {
	if on, ok := c.resources[gvr]; ok {
		return on
	}
	if on, ok := c.versions[gvr.GroupVersion()]; ok {
		return on
	}
	on := registry.ServedByDefault(gvr.Version)
	for _, m := range maturities() {
		if value, ok := c.values[m.key]; ok && m.matches(gvr.Version) {
			on = value == "true"
		}
	}
	return on
}

// Named reports whether a resource or its version is switched on by its own name, not by its maturity.
func (c *Config) Named(gvr schema.GroupVersionResource) bool {
	if on, ok := c.resources[gvr]; ok {
		return on
	}
	return c.versions[gvr.GroupVersion()]
}

// Apply sets which versions of the kinds are disabled. It fails, with the message of kube-apiserver, if a setting
// names a version that is newer than the emulated release.
func (c *Config) Apply(kinds []*registry.Kind) error {
	for _, k := range kinds {
		later := false // whether an earlier version of the kind is served
		for i := len(k.Versions) - 1; i >= 0; i-- {
			v := &k.Versions[i]
			gvr := k.GroupVersion(v).WithResource(k.Resource)
			on := c.Enabled(gvr) && !v.Gone
			if v.Introduced != 0 {
				if c.resources[gvr] && !c.compatibility.LaterNamed {
					return fmt.Errorf("cannot enable resource %s in runtime-config because it is introduced at 1.%d after the current version %s. "+
						"Consider setting --runtime-config-emulation-forward-compatible=true", text(gvr), v.Introduced, c.compatibility.Release)
				}
				on = c.compatibility.LaterNamed && (c.resources[gvr] || c.versions[gvr.GroupVersion()]) ||
					c.compatibility.Later && later && on
			}
			v.Disabled = !on
			later = later || on && !alphaVersion.MatchString(v.Name)
		}
	}
	return nil
}

func text(gvr schema.GroupVersionResource) string {
	return fmt.Sprintf("%s, Resource=%s", gvr.GroupVersion(), gvr.Resource)
}
