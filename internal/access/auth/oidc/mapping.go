package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	claimEmail    = "email"
	claimVerified = "email_verified"

	extraCredential = "authentication.kubernetes.io/credential-id"
)

// claims are the claims of a verified token by name.
type claims map[string]json.RawMessage

func (c claims) read(name string, into any) error {
	raw, ok := c[name]
	if !ok {
		return errors.New("claim not present")
	}
	return json.Unmarshal(raw, into)
}

// values returns the claims as values for expressions.
func (c claims) values() (map[string]any, error) {
	out := make(map[string]any, len(c))
	for name, raw := range c {
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, nil
}

// textOrTexts is a claim that is a string or a list of strings.
type textOrTexts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *textOrTexts) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*t = list
		return nil
	}
	var one string
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*t = []string{one}
	return nil
}

// Mapping converts the claims of an issuer's tokens to users.
type Mapping struct {
	config                *apiserver.JWTAuthenticator
	username, groups, uid *expression // nil if a claim is configured instead, or nothing
	extra                 []extraMapping
	claimRules, userRules []*expression
}

type extraMapping struct {
	key string
	*expression
}

// hasExpressions reports whether an expression uses the claims, so that they have to be
// converted to values.
func (m *Mapping) hasExpressions() bool {
	return m.username != nil || m.groups != nil || m.uid != nil || len(m.extra) > 0 || len(m.claimRules) > 0
}

// user returns the user for the claims, or an error if a validation rule is not met.
func (m *Mapping) user(ctx context.Context, c claims) (*request.User, error) {
	var values map[string]any
	if m.hasExpressions() {
		var err error
		if values, err = c.values(); err != nil {
			return nil, fmt.Errorf("oidc: parse claims: %w", err)
		}
	}
	u := &request.User{}
	var err error
	if u.Name, err = m.nameOf(ctx, c, values); err != nil {
		return nil, err
	}
	if u.Groups, err = m.groupsOf(ctx, c, values); err != nil {
		return nil, err
	}
	if u.UID, err = m.uidOf(ctx, c, values); err != nil {
		return nil, err
	}
	if u.Extra, err = m.extraOf(ctx, c, values); err != nil {
		return nil, err
	}
	if err := m.checkClaims(ctx, c, values); err != nil {
		return nil, err
	}
	return u, m.checkUser(ctx, u)
}

func (m *Mapping) nameOf(ctx context.Context, c claims, values map[string]any) (string, error) {
	if m.username != nil {
		name, err := m.username.text(ctx, "username", values)
		if err == nil && name == "" {
			err = errors.New("oidc: empty username via CEL expression is not allowed")
		}
		return name, err
	}
	from := &m.config.ClaimMappings.Username
	var name string
	if err := c.read(from.Claim, &name); err != nil {
		return "", fmt.Errorf("oidc: parse username claims %q: %w", from.Claim, err)
	}
	if from.Claim == claimEmail {
		if err := c.checkEmail(); err != nil {
			return "", err
		}
	}
	return ptr.Deref(from.Prefix, "") + name, nil
}

// checkEmail returns an error if the issuer has not verified the email address.
func (c claims) checkEmail() error {
	if _, ok := c[claimVerified]; !ok {
		return nil
	}
	var verified bool
	if err := c.read(claimVerified, &verified); err != nil {
		return fmt.Errorf("oidc: parse 'email_verified' claim: %w", err)
	}
	if !verified {
		return errors.New("oidc: email not verified")
	}
	return nil
}

func (m *Mapping) groupsOf(ctx context.Context, c claims, values map[string]any) ([]string, error) {
	from := &m.config.ClaimMappings.Groups
	if _, ok := c[from.Claim]; ok && from.Claim != "" {
		var groups textOrTexts
		if err := c.read(from.Claim, &groups); err != nil {
			return nil, fmt.Errorf("oidc: parse groups claim %q: %w", from.Claim, err)
		}
		for i := range groups {
			groups[i] = ptr.Deref(from.Prefix, "") + groups[i]
		}
		return groups, nil
	}
	if m.groups == nil {
		return nil, nil
	}
	var groups []string
	out, err := m.groups.eval(ctx, values)
	if err == nil {
		groups, err = textsOf(out)
	}
	if err != nil {
		return nil, fmt.Errorf("oidc: error evaluating group claim expression: %w", err)
	}
	return groups, nil
}

func (m *Mapping) uidOf(ctx context.Context, c claims, values map[string]any) (string, error) {
	if claim := m.config.ClaimMappings.UID.Claim; claim != "" {
		var uid string
		if err := c.read(claim, &uid); err != nil {
			return "", fmt.Errorf("oidc: parse uid claim %q: %w", claim, err)
		}
		return uid, nil
	}
	if m.uid == nil {
		return "", nil
	}
	return m.uid.text(ctx, "uid", values)
}

func (m *Mapping) extraOf(ctx context.Context, c claims, values map[string]any) (map[string][]string, error) {
	extra := map[string][]string{}
	var id string
	if c.read("jti", &id) == nil && id != "" {
		extra[extraCredential] = []string{"JTI=" + id}
	}
	for _, e := range m.extra {
		out, err := e.eval(ctx, values)
		if err != nil {
			return nil, err
		}
		texts, err := textsOf(out)
		if err != nil {
			return nil, fmt.Errorf("oidc: error evaluating extra claim expression: %s: %w", e.source, err)
		}
		if len(texts) > 0 {
			extra[e.key] = texts
		}
	}
	if len(extra) == 0 {
		return nil, nil
	}
	return extra, nil
}

// checkClaims returns an error if a validation rule about claims is not met.
func (m *Mapping) checkClaims(ctx context.Context, c claims, values map[string]any) error {
	for i := range m.config.ClaimValidationRules {
		rule := &m.config.ClaimValidationRules[i]
		if rule.Claim == "" {
			continue
		}
		if _, ok := c[rule.Claim]; !ok {
			return fmt.Errorf("oidc: required claim %s not present in ID token", rule.Claim)
		}
		var value string
		if err := c.read(rule.Claim, &value); err != nil {
			return fmt.Errorf("oidc: parse claim %s: %w", rule.Claim, err)
		}
		if value != rule.RequiredValue {
			return fmt.Errorf("oidc: required claim %s value does not match. Got = %s, want = %s", rule.Claim, value,
				rule.RequiredValue)
		}
	}
	for _, rule := range m.claimRules {
		if err := rule.checkRule(ctx, values); err != nil {
			return fmt.Errorf("oidc: error evaluating claim validation expression: %w", err)
		}
	}
	return nil
}

// checkUser returns an error if a validation rule about the user is not met.
func (m *Mapping) checkUser(ctx context.Context, u *request.User) error {
	if len(m.userRules) == 0 {
		return nil
	}
	extra := u.Extra
	if extra == nil {
		extra = map[string][]string{}
	}
	value := map[string]any{"username": u.Name, "uid": u.UID, "groups": append([]string{}, u.Groups...), "extra": extra}
	for _, rule := range m.userRules {
		if err := rule.checkRule(ctx, value); err != nil {
			return fmt.Errorf("oidc: error evaluating user info validation rule: %w", err)
		}
	}
	return nil
}

// issuerOf returns the issuer in a token that has not been verified yet, or "" if the token is
// not a JSON web token in compact form.
func issuerOf(token string) string {
	const google = "accounts.google.com" // Google's tokens have this issuer without a scheme
	parts := strings.Split(token, ".")
	if len(parts) != 3 || strings.HasPrefix(strings.TrimSpace(token), "{") {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var c struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &c) != nil {
		return ""
	}
	if c.Issuer == google {
		return "https://" + google
	}
	return c.Issuer
}
