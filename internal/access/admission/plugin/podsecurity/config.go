package podsecurity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"

	"github.com/keelson-dev/keelson/internal/machinery/configfile"
)

var configKind = configfile.Kind{
	Group: "pod-security.admission.config.k8s.io", Name: "PodSecurityConfiguration",
	Versions: []string{"v1", "v1beta1", "v1alpha1"},
}

// Config is the configuration of the plug-in.
type Config struct {
	// Defaults hold for namespaces without labels: level privileged in the latest version if nothing is configured.
	Defaults api.Policy
	// Exemptions are the pods that are not compared with any level.
	Exemptions Exemptions
}

// Exemptions are names of users who write, of namespaces, and of the runtime classes of pods.
type Exemptions struct {
	Usernames      []string `json:"usernames"`
	Namespaces     []string `json:"namespaces"`
	RuntimeClasses []string `json:"runtimeClasses"`
}

// document is a PodSecurityConfiguration. Its versions have the same fields.
type document struct {
	metav1.TypeMeta `json:",inline"`
	Defaults        struct {
		Enforce        string `json:"enforce"`
		EnforceVersion string `json:"enforce-version"`
		Audit          string `json:"audit"`
		AuditVersion   string `json:"audit-version"`
		Warn           string `json:"warn"`
		WarnVersion    string `json:"warn-version"`
	} `json:"defaults"`
	Exemptions Exemptions `json:"exemptions"`
}

// DecodeConfig decodes a PodSecurityConfiguration in JSON or YAML and sets its defaults. For nil it returns the
// defaults.
func DecodeConfig(raw []byte) (Config, error) {
	d, err := parse(raw)
	if err != nil {
		return Config{}, err
	}
	c := Config{Exemptions: d.Exemptions}
	var errs field.ErrorList
	in := &d.Defaults
	for _, mode := range []struct {
		name           string
		level, version string
		into           *api.LevelVersion
	}{
		{"enforce", in.Enforce, in.EnforceVersion, &c.Defaults.Enforce},
		{"warn", in.Warn, in.WarnVersion, &c.Defaults.Warn},
		{"audit", in.Audit, in.AuditVersion, &c.Defaults.Audit},
	} {
		mode.level, mode.version = cmp.Or(mode.level, string(api.LevelPrivileged)), cmp.Or(mode.version, api.VersionLatest)
		path := field.NewPath("defaults")
		if mode.into.Level, err = api.ParseLevel(mode.level); err != nil {
			errs = append(errs, field.Invalid(path.Child(mode.name), mode.level, err.Error()))
		}
		if mode.into.Version, err = api.ParseVersion(mode.version); err != nil {
			errs = append(errs, field.Invalid(path.Child(mode.name+"-version"), mode.version, err.Error()))
		}
	}
	errs = append(errs, c.Exemptions.validate(field.NewPath("exemptions"))...)
	return c, errs.ToAggregate()
}

func parse(raw []byte) (*document, error) {
	d := &document{}
	if len(raw) == 0 {
		return d, nil
	}
	strict, err := configfile.Unmarshal(raw, d)
	switch {
	case err != nil:
		return nil, err
	case !configKind.Matches(&d.TypeMeta):
		return nil, fmt.Errorf("no kind %q is registered for version %q", d.Kind, d.APIVersion)
	}
	return d, strict
}

func (e *Exemptions) validate(path *field.Path) field.ErrorList {
	errs := validateNames(path.Child("namespaces"), e.Namespaces, func(name string) error {
		return joined(validation.ValidateNamespaceName(name, false))
	})
	errs = append(errs, validateNames(path.Child("runtimeClasses"), e.RuntimeClasses, func(name string) error {
		return joined(validation.NameIsDNSSubdomain(name, false))
	})...)
	return append(errs, validateNames(path.Child("usernames"), e.Usernames, func(name string) error {
		if name == "" {
			return errors.New("username must not be empty")
		}
		return nil
	})...)
}

// validateNames checks that names are valid and different.
func validateNames(path *field.Path, names []string, check func(string) error) (errs field.ErrorList) {
	for i, name := range names {
		if err := check(name); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), name, err.Error()))
		} else if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
	}
	return errs
}

func joined(texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, ", "))
}
