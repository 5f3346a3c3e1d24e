package plugin

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"
)

// ReadConfig reads an AdmissionConfiguration and returns the configurations of single plug-ins by their names.
// A plug-in has its configuration in the file itself, or in a file of its own whose path is relative to the first.
func ReadConfig(file string, read Read, all []Plugin) (map[string][]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("unable to read admission control configuration from %q [%w]", file, err)
	}
	var config apiserver.AdmissionConfiguration
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, fmt.Errorf("admission control configuration %s: %w", file, err)
	}
	// kube-apiserver reads the older version too, which has the same fields.
	older := config.APIVersion == "apiserver.k8s.io/v1alpha1"
	if config.Kind != "AdmissionConfiguration" || !older && config.APIVersion != apiserver.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("admission control configuration %s: it is of kind %q of %q, not an AdmissionConfiguration of %s",
			file, config.Kind, config.APIVersion, apiserver.SchemeGroupVersion)
	}
	out := map[string][]byte{}
	for _, p := range config.Plugins {
		if err := readPluginConfig(filepath.Dir(file), read, p, all, out); err != nil {
			return nil, fmt.Errorf("admission control configuration %s: plug-in %q: %w", file, p.Name, err)
		}
	}
	return out, nil
}

// readPluginConfig adds the configuration of one plug-in to out.
func readPluginConfig(
	dir string, read Read, p apiserver.AdmissionPluginConfiguration, all []Plugin,
	out map[string][]byte,
) error {
	switch {
	case !slices.ContainsFunc(all, func(known Plugin) bool { return known.Name == p.Name }):
		return errors.New("it is unknown")
	case out[p.Name] != nil:
		return errors.New("it is configured twice")
	case p.Configuration != nil && p.Path != "":
		return errors.New("it has a configuration and a path")
	case p.Configuration != nil:
		out[p.Name] = p.Configuration.Raw
	case p.Path != "":
		path := p.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		text, err := read(path)
		if err != nil {
			return err
		}
		out[p.Name] = text
	}
	return nil
}
