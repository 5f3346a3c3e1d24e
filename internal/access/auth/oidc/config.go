package oidc

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/configfile"
)

var configKind = configfile.Kind{
	Group: "apiserver.config.k8s.io", Name: "AuthenticationConfiguration", Versions: []string{"v1", "v1beta1", "v1alpha1"},
}

// ParseConfig parses an AuthenticationConfiguration in YAML or JSON. It does not validate it.
func ParseConfig(content []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(content) == 0 {
		return nil, errors.New("empty config data")
	}
	c := &apiserver.AuthenticationConfiguration{}
	if err := configKind.Decode(content, c, &c.TypeMeta); err != nil {
		return nil, err
	}
	return c, nil
}

// Flags are the values of the --oidc-* flags, which describe one issuer.
type Flags struct {
	IssuerURL, ClientID           string
	CA                            string // PEM; "" stands for the system's certificates
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	RequiredClaims                map[string]string
}

// noPrefixFlag is the value of --oidc-username-prefix that turns prefixes off.
const noPrefixFlag = "-"

// Issuer returns the configuration of the issuer that the flags describe.
func (f *Flags) Issuer() apiserver.JWTAuthenticator {
	prefix := f.UsernamePrefix
	switch {
	case prefix == noPrefixFlag:
		prefix = ""
	case prefix == "" && f.UsernameClaim != claimEmail:
		prefix = f.IssuerURL + "#" // so that users of different issuers do not have the same name
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
		j.ClaimValidationRules = append(j.ClaimValidationRules,
			apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	slices.SortFunc(j.ClaimValidationRules,
		func(a, b apiserver.ClaimValidationRule) int { return strings.Compare(a.Claim, b.Claim) })
	return j
}

// maxIssuers limits the issuers of a configuration.
const maxIssuers = 64

// Validate validates a configuration, and compiles the expressions of each issuer. disallowed
// are the issuers of service account tokens, which cannot be configured.
func Validate(c *apiserver.AuthenticationConfiguration, disallowed []string) ([]*Mapping, field.ErrorList) {
	root := field.NewPath("jwt")
	if len(c.JWT) > maxIssuers {
		return nil, field.ErrorList{field.TooMany(root, len(c.JWT), maxIssuers)}
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
		if discovery := ptr.Deref(j.Issuer.DiscoveryURL, ""); discovery != "" {
			if seenDiscovery[discovery] {
				errs = append(errs, field.Duplicate(at.Child("issuer", "discoveryURL"), discovery))
			}
			seenDiscovery[discovery] = true
		}
	}
	if a := c.Anonymous; a != nil && !a.Enabled && len(a.Conditions) > 0 {
		errs = append(errs,
			field.Invalid(field.NewPath("anonymous", "conditions"), a.Conditions,
				"enabled should be set to true when conditions are defined"))
	}
	return mappings, errs
}
