package oidc

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/utils/ptr"
)

// validateIssuer validates an issuer, and compiles its expressions.
func validateIssuer(j *apiserver.JWTAuthenticator, at *field.Path, disallowed []string) (*Mapping, field.ErrorList) {
	v := &validator{mapping: &Mapping{config: j}}
	v.issuer(&j.Issuer, at.Child("issuer"), disallowed)
	v.claimRules(j.ClaimValidationRules, at.Child("claimValidationRules"))
	v.mappings(&j.ClaimMappings, at.Child("claimMappings"))
	v.userRules(j.UserValidationRules, at.Child("userValidationRules"))
	return v.mapping, v.errs
}

// validator collects the errors and the compiled expressions of one issuer.
type validator struct {
	errs    field.ErrorList
	mapping *Mapping
	// usesEmail and usesVerified report whether expressions use claims.email and
	// claims.email_verified.
	usesEmail, usesVerified bool
}

func (v *validator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

func (v *validator) issuer(i *apiserver.Issuer, at *field.Path, disallowed []string) {
	if i.URL == "" {
		v.add(field.Required(at.Child("url"), ""))
	} else {
		v.url(i.URL, at.Child("url"), disallowed)
	}
	v.discoveryURL(i, at.Child("discoveryURL"))
	v.audiences(i, at)
	if i.CertificateAuthority != "" {
		if _, err := parsePool(i.CertificateAuthority); err != nil {
			v.add(field.Invalid(at.Child("certificateAuthority"), "<omitted>", err.Error()))
		}
	}
	switch i.EgressSelectorType {
	case "", apiserver.EgressSelectorControlPlane, apiserver.EgressSelectorCluster:
	default:
		v.add(field.Invalid(at.Child("egressSelectorType"), i.EgressSelectorType,
			"egress selector must be either controlplane or cluster"))
	}
}

// parsePool returns the certificates in PEM text as a pool.
func parsePool(pem string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("data does not contain any valid RSA or ECDSA certificates")
	}
	return pool, nil
}

func (v *validator) discoveryURL(i *apiserver.Issuer, at *field.Path) {
	discovery := ptr.Deref(i.DiscoveryURL, "")
	if discovery == "" {
		return
	}
	if i.URL != "" && strings.TrimRight(i.URL, "/") == strings.TrimRight(discovery, "/") {
		v.add(field.Invalid(at, discovery, "discoveryURL must be different from URL"))
	}
	v.url(discovery, at, nil)
}

func (v *validator) url(s string, at *field.Path, disallowed []string) {
	if slices.Contains(disallowed, s) {
		v.add(field.Invalid(at, s,
			fmt.Sprintf("URL must not overlap with disallowed issuers: %s", slices.Sorted(slices.Values(disallowed)))))
	}
	u, err := url.Parse(s)
	if err != nil {
		v.add(field.Invalid(at, s, err.Error()))
		return
	}
	if u.Scheme != "https" {
		v.add(field.Invalid(at, s, "URL scheme must be https"))
	}
	if u.User != nil {
		v.add(field.Invalid(at, s, "URL must not contain a username or password"))
	}
	if u.RawQuery != "" {
		v.add(field.Invalid(at, s, "URL must not contain a query"))
	}
	if u.Fragment != "" {
		v.add(field.Invalid(at, s, "URL must not contain a fragment"))
	}
}

func (v *validator) audiences(i *apiserver.Issuer, at *field.Path) {
	path := at.Child("audiences")
	if len(i.Audiences) == 0 {
		v.add(field.Required(path, fmt.Sprintf("at least one %s is required", path)))
		return
	}
	for n, audience := range i.Audiences {
		if audience == "" {
			v.add(field.Required(path.Index(n), ""))
		}
		if slices.Contains(i.Audiences[:n], audience) {
			v.add(field.Duplicate(path.Index(n), audience))
		}
	}
	any := i.AudienceMatchPolicy == apiserver.AudienceMatchPolicyMatchAny
	switch {
	case len(i.Audiences) > 1 && !any:
		v.add(field.Invalid(at.Child("audienceMatchPolicy"), i.AudienceMatchPolicy,
			"audienceMatchPolicy must be MatchAny for multiple audiences"))
	case len(i.Audiences) == 1 && i.AudienceMatchPolicy != "" && !any:
		v.add(field.Invalid(at.Child("audienceMatchPolicy"), i.AudienceMatchPolicy,
			"audienceMatchPolicy must be empty or MatchAny for single audience"))
	}
}

func (v *validator) claimRules(rules []apiserver.ClaimValidationRule, at *field.Path) {
	claims, expressions := map[string]bool{}, map[string]bool{}
	for i := range rules {
		rule, at := &rules[i], at.Index(i)
		switch {
		case rule.Claim != "" && rule.Expression != "":
			v.add(field.Invalid(at, rule.Claim, "claim and expression can't both be set"))
		case rule.Claim == "" && rule.Expression == "":
			v.add(field.Required(at, "claim or expression is required"))
		case rule.Claim != "":
			if rule.Message != "" {
				v.add(field.Invalid(at.Child("message"), rule.Message, "may not be specified when claim is set"))
			}
			if claims[rule.Claim] {
				v.add(field.Duplicate(at.Child("claim"), rule.Claim))
			}
			claims[rule.Claim] = true
		default:
			if rule.RequiredValue != "" {
				v.add(field.Invalid(at.Child("requiredValue"), rule.RequiredValue, "may not be specified when expression is set"))
			}
			if expressions[rule.Expression] {
				v.add(field.Duplicate(at.Child("expression"), rule.Expression))
				continue
			}
			expressions[rule.Expression] = true
			if e := v.compile(rule.Expression, claimsVariable, true, at.Child("expression")); e != nil {
				e.message = rule.Message
				v.mapping.claimRules = append(v.mapping.claimRules, e)
				v.usesVerified = v.usesVerified || e.Selects(claimsVariable, claimVerified)
			}
		}
	}
}

func (v *validator) userRules(rules []apiserver.UserValidationRule, at *field.Path) {
	seen := map[string]bool{}
	for i := range rules {
		rule, at := &rules[i], at.Index(i).Child("expression")
		switch {
		case rule.Expression == "":
			v.add(field.Required(at, ""))
		case seen[rule.Expression]:
			v.add(field.Duplicate(at, rule.Expression))
		default:
			seen[rule.Expression] = true
			if e := v.compile(rule.Expression, userVariable, true, at); e != nil {
				e.message = rule.Message
				v.mapping.userRules = append(v.mapping.userRules, e)
			}
		}
	}
}

func (v *validator) mappings(m *apiserver.ClaimMappings, at *field.Path) {
	v.mapping.username = v.prefixed(&m.Username, at.Child("username"), true)
	if e := v.mapping.username; e != nil {
		v.usesEmail = e.Selects(claimsVariable, claimEmail)
		v.usesVerified = v.usesVerified || e.Selects(claimsVariable, claimVerified)
	}
	v.mapping.groups = v.prefixed(&m.Groups, at.Child("groups"), false)
	switch {
	case m.UID.Claim != "" && m.UID.Expression != "":
		v.add(field.Invalid(at.Child("uid"), "", "claim and expression can't both be set"))
	case m.UID.Expression != "":
		v.mapping.uid = v.compile(m.UID.Expression, claimsVariable, false, at.Child("uid", "expression"))
	}
	v.extra(m.Extra, at.Child("extra"))
	if v.usesEmail && !v.usesVerified {
		v.add(field.Invalid(at.Child("username", "expression"), m.Username.Expression,
			"claims.email_verified must be used in claimMappings.username.expression or "+
				"claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used "+
				"in claimMappings.username.expression"))
	}
}

func (v *validator) prefixed(m *apiserver.PrefixedClaimOrExpression, at *field.Path, required bool) *expression {
	switch {
	case m.Expression != "" && m.Claim != "":
		v.add(field.Invalid(at, "", "claim and expression can't both be set"))
	case m.Expression != "":
		if m.Prefix != nil {
			v.add(field.Invalid(at.Child("prefix"), *m.Prefix, "may not be specified when expression is set"))
		}
		return v.compile(m.Expression, claimsVariable, false, at.Child("expression"))
	case m.Claim != "":
		if m.Prefix == nil {
			v.add(field.Required(at.Child("prefix"),
				"prefix is required when claim is set. It can be set to an empty string to disable prefixing"))
		}
	case required:
		v.add(field.Required(at, "claim or expression is required"))
	}
	return nil
}

func (v *validator) extra(list []apiserver.ExtraMapping, at *field.Path) {
	seen := map[string]bool{}
	for i := range list {
		m, at := &list[i], at.Index(i)
		key := at.Child("key")
		v.add(utilvalidation.IsDomainPrefixedPath(key, m.Key)...)
		if m.Key != strings.ToLower(m.Key) {
			v.add(field.Invalid(key, m.Key, "must be lowercase"))
		}
		if isReserved(m.Key) {
			v.add(field.Invalid(key, m.Key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"))
		}
		if seen[m.Key] {
			v.add(field.Duplicate(key, m.Key))
			continue
		}
		seen[m.Key] = true
		if m.ValueExpression == "" {
			v.add(field.Required(at.Child("valueExpression"), ""))
			continue
		}
		if e := v.compile(m.ValueExpression, claimsVariable, false, at.Child("valueExpression")); e != nil {
			v.mapping.extra = append(v.mapping.extra, extraMapping{m.Key, e})
			v.usesVerified = v.usesVerified || e.Selects(claimsVariable, claimVerified)
		}
	}
}

// isReserved reports whether the domain of a key belongs to Kubernetes.
func isReserved(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool {
		return domain == own || strings.HasSuffix(domain, "."+own)
	})
}

func (v *validator) compile(text, variable string, boolean bool, at *field.Path) *expression {
	e, err := compile(text, variable, boolean)
	if err != nil {
		v.add(field.Invalid(at, text, err.Error()))
		return nil
	}
	return e
}
