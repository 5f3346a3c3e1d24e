package encrypt

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// configuration is the configuration file (EncryptionConfiguration of apiserver.config.k8s.io/v1,
// https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/).
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []resourceConfiguration `json:"resources"`
}

type resourceConfiguration struct {
	Resources []string                `json:"resources"`
	Providers []providerConfiguration `json:"providers"`
}

type providerConfiguration struct {
	AESGCM    *keysConfiguration `json:"aesgcm,omitempty"`
	AESCBC    *keysConfiguration `json:"aescbc,omitempty"`
	Secretbox *keysConfiguration `json:"secretbox,omitempty"`
	Identity  *struct{}          `json:"identity,omitempty"`
	KMS       *kmsConfiguration  `json:"kms,omitempty"`
}

type keysConfiguration struct {
	Keys []keyConfiguration `json:"keys"`
}

type keyConfiguration struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

type kmsConfiguration struct {
	APIVersion string           `json:"apiVersion,omitempty"`
	Name       string           `json:"name"`
	CacheSize  *int32           `json:"cachesize,omitempty"`
	Endpoint   string           `json:"endpoint"`
	Timeout    *metav1.Duration `json:"timeout,omitempty"`
}

const (
	configAPIVersion = "apiserver.config.k8s.io/v1"
	configKind       = "EncryptionConfiguration"
	// defaultKMSTimeout limits a call of a plug-in.
	defaultKMSTimeout = 3 * time.Second
)

// parse decodes a configuration, sets its defaults and validates it.
func parse(document []byte) (*configuration, error) {
	c := &configuration{}
	if err := yaml.UnmarshalStrict(document, c); err != nil {
		return nil, err
	}
	if c.APIVersion != configAPIVersion || c.Kind != configKind {
		return nil, fmt.Errorf("want kind %s of %s, got %q of %q", configKind, configAPIVersion, c.Kind, c.APIVersion)
	}
	for _, r := range c.Resources {
		for _, p := range r.Providers {
			if p.KMS != nil && p.KMS.Timeout == nil {
				p.KMS.Timeout = &metav1.Duration{Duration: defaultKMSTimeout}
			}
			if p.KMS != nil && p.KMS.APIVersion == "" {
				p.KMS.APIVersion = "v1"
			}
		}
	}
	if errs := c.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return c, nil
}

func (c *configuration) validate() field.ErrorList {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{field.Required(root, "at least one resources is required")}
	}
	var errs field.ErrorList
	masks := map[schema.GroupResource]bool{}
	names := map[string]bool{}
	for i, r := range c.Resources {
		at := root.Index(i)
		errs = append(errs, validateResources(r.Resources, masks, at.Child("resources"))...)
		if len(r.Providers) == 0 {
			errs = append(errs, field.Required(at.Child("providers"), "at least one providers is required"))
		}
		for k, p := range r.Providers {
			errs = append(errs, p.validate(names, at.Child("providers").Index(k))...)
		}
	}
	return errs
}

// notRESTResources are the names of stored data that is not a resource of the API.
var notRESTResources = []string{"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}

// validateResources validates the resources of one entry. masks contains the wildcards of the earlier entries; the
// wildcards of this entry are added to it.
func validateResources(list []string, masks map[schema.GroupResource]bool, path *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "at least one resources is required")}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	own := map[schema.GroupResource]bool{}
	for i, name := range list {
		at := path.Index(i)
		invalid := func(why string) { errs = append(errs, field.Invalid(at, name, why)) }
		gr := schema.ParseGroupResource(name)
		switch {
		case seen[name]:
			invalid("the same resource cannot be specified multiple times")
		case name != strings.ToLower(name):
			invalid("resource name should not contain capital letters")
		case name == "*":
			invalid("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
		case gr.Group == "extensions":
			invalid("'extensions' group has been removed and cannot be used for encryption")
		case gr.Group == "events.k8s.io":
			invalid(
				"'*.events.k8s.io' objects are stored using the 'events' API group in etcd. " +
					"Use 'events' instead in the config file",
			)
		case strings.HasPrefix(name, "*") && !strings.HasPrefix(name, "*."), gr.Group == "*" && gr.Resource != "*":
			invalid("encrypting the same resource across groups is not supported")
		case slices.Contains(notRESTResources, name):
			invalid("resources which do not have REST API/s cannot be encrypted")
		}
		for _, mask := range wildcardsFor(gr) {
			if masks[mask] {
				invalid(fmt.Sprintf("resource %q is masked by earlier rule %q", name, wildcardName(mask)))
			}
		}
		seen[name] = true
		own[gr] = true
	}
	for i, name := range list {
		gr := schema.ParseGroupResource(name)
		for _, mask := range wildcardsFor(gr) {
			if own[mask] && mask != gr {
				errs = append(
					errs,
					field.Invalid(
						path.Index(i), name,
						"using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed "+
							"as they will be masked",
					),
				)
				break
			}
		}
	}
	for gr := range own {
		if gr.Resource == "*" {
			masks[gr] = true
		}
	}
	return errs
}

var allResources = schema.GroupResource{Group: "*", Resource: "*"}

// wildcardsFor returns the wildcards that include gr: the one of its group and the one of all resources.
func wildcardsFor(gr schema.GroupResource) []schema.GroupResource {
	return []schema.GroupResource{{Group: gr.Group, Resource: "*"}, allResources}
}

// wildcardName returns the name of a wildcard in a configuration; "*." for the core group.
func wildcardName(gr schema.GroupResource) string {
	if gr.Group == "" && gr.Resource == "*" {
		return "*."
	}
	return gr.String()
}

func (p *providerConfiguration) validate(names map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	set := 0
	keys := func(name string, c *keysConfiguration, sizes ...int) {
		if c != nil {
			set++
			errs = append(errs, c.validate(path.Child(name, "keys"), sizes)...)
		}
	}
	keys("aesgcm", p.AESGCM, 16, 24, 32)
	keys("aescbc", p.AESCBC, 16, 24, 32)
	keys("secretbox", p.Secretbox, 32)
	if p.Identity != nil {
		set++
	}
	if p.KMS != nil {
		set++
		errs = append(errs, p.KMS.validate(names, path.Child("kms"))...)
	}
	switch {
	case set == 0:
		errs = append(
			errs,
			field.Required(
				path, "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
			),
		)
	case set > 1:
		errs = append(
			errs,
			field.Invalid(
				path, "", "more than one provider specified in a single element, should split into different list elements",
			),
		)
	}
	return errs
}

// validate validates the keys. Its errors do not contain secrets. sizes are the allowed lengths of secrets in bytes.
func (c *keysConfiguration) validate(path *field.Path, sizes []int) field.ErrorList {
	if len(c.Keys) == 0 {
		return field.ErrorList{field.Required(path, "at least one keys is required")}
	}
	var errs field.ErrorList
	for i, k := range c.Keys {
		at := path.Index(i)
		switch {
		case k.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "name is a mandatory field for a key"))
		case strings.Contains(k.Name, ":"):
			errs = append(errs, field.Invalid(at.Child("name"), k.Name, "must not contain ':'"))
		}
		if k.Secret == "" {
			errs = append(errs, field.Required(at.Child("secret"), "secret is a mandatory field for a key"))
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(k.Secret)
		if err != nil {
			errs = append(errs, field.Invalid(at.Child("secret"), "REDACTED", "secrets must be base64 encoded"))
		} else if !slices.Contains(sizes, len(secret)) {
			errs = append(
				errs,
				field.Invalid(
					at.Child("secret"), "REDACTED",
					fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v", len(secret), sizes),
				),
			)
		}
	}
	return errs
}

func (c *kmsConfiguration) validate(names map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.Name == "":
		errs = append(errs, field.Required(path.Child("name"), "name is a mandatory field for a provider"))
	case strings.Contains(c.Name, ":"):
		errs = append(
			errs,
			field.Invalid(path.Child("name"), c.Name, fmt.Sprintf("invalid KMS provider name %s, must not contain ':'", c.Name)),
		)
	case names[c.Name]:
		errs = append(
			errs,
			field.Invalid(
				path.Child("name"), c.Name, fmt.Sprintf("duplicate KMS provider name %s, names must be unique", c.Name),
			),
		)
	}
	names[c.Name] = true
	switch c.APIVersion {
	case "v2":
		if c.CacheSize != nil {
			errs = append(errs, field.Invalid(path.Child("cachesize"), *c.CacheSize, "cachesize is not supported in v2"))
		}
	case "v1":
		errs = append(
			errs,
			field.Invalid(
				path.Child("apiVersion"), c.APIVersion, "KMSv1 is deprecated and not supported. Use apiVersion v2 instead",
			),
		)
	default:
		errs = append(
			errs,
			field.Invalid(
				path.Child("apiVersion"), c.APIVersion,
				fmt.Sprintf("unsupported apiVersion %s for KMS provider, only v2 is supported", c.APIVersion),
			),
		)
	}
	if c.Timeout.Duration <= 0 {
		errs = append(
			errs, field.Invalid(path.Child("timeout"), c.Timeout.Duration.String(), "timeout should be a positive value"),
		)
	}
	if _, err := c.socket(); err != nil {
		errs = append(errs, field.Invalid(path.Child("endpoint"), c.Endpoint, err.Error()))
	}
	return errs
}

// socket returns the path of the Unix socket of the endpoint, or "@" and its name if it is an abstract socket.
func (c *kmsConfiguration) socket() (string, error) {
	if c.Endpoint == "" {
		return "", fmt.Errorf("endpoint is a mandatory field for a provider")
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return "", fmt.Errorf("invalid endpoint for kms provider, error: %w", err)
	}
	if u.Scheme != "unix" {
		return "", fmt.Errorf("unsupported scheme %q for KMS provider, only unix is supported", u.Scheme)
	}
	if strings.HasPrefix(u.Path, "/@") {
		return u.Path[1:], nil
	}
	if u.Path == "" {
		return "", fmt.Errorf("invalid endpoint for kms provider, error: it has no path")
	}
	return u.Path, nil
}
