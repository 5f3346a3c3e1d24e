package oidc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	configGroup = "apiserver.config.k8s.io"
	configKind  = "AuthenticationConfiguration"
)

// configVersions have the same fields.
var configVersions = []string{"v1", "v1beta1", "v1alpha1"}

// ParseConfig reads an AuthenticationConfiguration, YAML or JSON, without judging
// what it says.
func ParseConfig(content []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(content) == 0 {
		return nil, errors.New("empty config data")
	}
	document, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, err
	}
	c := &apiserver.AuthenticationConfiguration{}
	strict, err := kjson.UnmarshalStrict(document, c)
	if err != nil {
		return nil, err
	}
	group, version, _ := strings.Cut(c.APIVersion, "/")
	if group != configGroup || c.Kind != configKind || !slices.Contains(configVersions, version) {
		return nil, fmt.Errorf("expected %s of %s/v1, got apiVersion %q, kind %q", configKind, configGroup, c.APIVersion, c.Kind)
	}
	if len(strict) > 0 {
		return nil, fmt.Errorf("strict decoding error: %w", utilerrors.NewAggregate(strict))
	}
	return c, nil
}

// Flags describe one issuer as the --oidc-* flags do.
type Flags struct {
	IssuerURL, ClientID           string
	CA                            string // PEM; "" is the system's
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	RequiredClaims                map[string]string
}

// noPrefix is the --oidc-username-prefix that asks for none.
const noPrefix = "-"

// Issuer returns the issuer that the flags describe.
func (f *Flags) Issuer() apiserver.JWTAuthenticator {
	prefix := f.UsernamePrefix
	switch {
	case prefix == noPrefix:
		prefix = ""
	case prefix == "" && f.UsernameClaim != claimEmail:
		prefix = f.IssuerURL + "#" // names of an issuer must not meet those of another
	}
	j := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: f.IssuerURL, Audiences: []string{f.ClientID}, CertificateAuthority: f.CA},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: f.UsernameClaim, Prefix: &prefix},
		},
	}
	if f.GroupsClaim != "" {
		j.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: &f.GroupsPrefix}
	}
	for claim, value := range f.RequiredClaims {
		j.ClaimValidationRules = append(j.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	slices.SortFunc(j.ClaimValidationRules, func(a, b apiserver.ClaimValidationRule) int { return strings.Compare(a.Claim, b.Claim) })
	return j
}

// mostIssuers is how many issuers a configuration may have.
const mostIssuers = 64

// Validate returns what is wrong with a configuration, and the expressions of each
// issuer. Tokens of disallowed issuers, which are the server's own, are somebody
// else's.
func Validate(c *apiserver.AuthenticationConfiguration, disallowed []string) ([]*Mapping, field.ErrorList) {
	root := field.NewPath("jwt")
	if len(c.JWT) > mostIssuers {
		return nil, field.ErrorList{field.TooMany(root, len(c.JWT), mostIssuers)}
	}
	var errs field.ErrorList
	var mappings []*Mapping
	seen, seenDiscovery := map[string]bool{}, map[string]bool{}
	for i := range c.JWT {
		at, j := root.Index(i), &c.JWT[i]
		m, wrong := validateIssuer(j, at, disallowed)
		mappings, errs = append(mappings, m), append(errs, wrong...)
		if seen[j.Issuer.URL] {
			errs = append(errs, field.Duplicate(at.Child("issuer", "url"), j.Issuer.URL))
		}
		seen[j.Issuer.URL] = true
		if discovery := deref(j.Issuer.DiscoveryURL); discovery != "" {
			if seenDiscovery[discovery] {
				errs = append(errs, field.Duplicate(at.Child("issuer", "discoveryURL"), discovery))
			}
			seenDiscovery[discovery] = true
		}
	}
	if a := c.Anonymous; a != nil && !a.Enabled && len(a.Conditions) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("anonymous", "conditions"), a.Conditions, "enabled should be set to true when conditions are defined"))
	}
	return mappings, errs
}
