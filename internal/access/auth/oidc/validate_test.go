package oidc

import (
	"strings"
	"testing"
)

// TestInvalidConfigurations validates documents that are wrong in one place each.
// The errors are kube-apiserver's.
func TestInvalidConfigurations(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	issuer := func(rest string) string {
		return head + "jwt:\n- issuer:\n    url: https://i\n    audiences: [a]\n" + rest
	}
	const name = "  claimMappings:\n    username: {claim: sub, prefix: ''}\n"
	for _, c := range []struct{ document, want string }{
		{issuer(name), ""},
		{head + "anonymous: {enabled: false, conditions: [{path: /healthz}]}",
			"anonymous.conditions: Invalid value: [{\"path\":\"/healthz\"}]: enabled should be set to true when " +
				"conditions are defined"},
		{head + "jwt:\n- issuer: {url: '', audiences: [a]}\n" + name, "jwt[0].issuer.url: Required value"},
		{head + "jwt:\n- issuer: {url: 'http://i', audiences: [a]}\n" + name,
			`jwt[0].issuer.url: Invalid value: "http://i": URL scheme must be https`},
		{head + "jwt:\n- issuer: {url: 'https://u:p@i?q#f', audiences: [a]}\n" + name,
			"[jwt[0].issuer.url: Invalid value: \"https://u:p@i?q#f\": URL must not contain a username or password, " +
				"jwt[0].issuer.url: Invalid value: \"https://u:p@i?q#f\": URL must not contain a query, " +
				"jwt[0].issuer.url: Invalid value: \"https://u:p@i?q#f\": URL must not contain a fragment]"},
		{head + "jwt:\n- issuer: {url: 'https://own', audiences: [a]}\n" + name,
			`jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with disallowed issuers: [https://own]`},
		{head + "jwt:\n- issuer: {url: 'https://i', audiences: []}\n" + name,
			"jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"},
		{head + "jwt:\n- issuer: {url: 'https://i', audiences: [a, a]}\n" + name,
			`[jwt[0].issuer.audiences[1]: Duplicate value: "a", jwt[0].issuer.audienceMatchPolicy: Invalid value: ` +
				`"": audienceMatchPolicy must be MatchAny for multiple audiences]`},
		{head + "jwt:\n- issuer: {url: 'https://i', audiences: [a], discoveryURL: 'https://i/'}\n" + name,
			`jwt[0].issuer.discoveryURL: Invalid value: "https://i/": discoveryURL must be different from URL`},
		{head + "jwt:\n- issuer: {url: 'https://i', audiences: [a], certificateAuthority: x}\n" + name,
			`jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>": data does not contain any valid RSA or ` +
				`ECDSA certificates`},
		{issuer("  claimMappings: {username: {claim: sub}}\n"),
			"jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be " +
				"set to an empty string to disable prefixing"},
		{issuer("  claimMappings: {username: {}}\n"),
			"jwt[0].claimMappings.username: Required value: claim or expression is required"},
		{issuer("  claimMappings: {username: {claim: a, expression: claims.a}}\n"),
			`jwt[0].claimMappings.username: Invalid value: "": claim and expression can't both be set`},
		{issuer("  claimMappings: {username: {expression: claims.email}}\n"),
			"jwt[0].claimMappings.username.expression: Invalid value: \"claims.email\": claims.email_verified must " +
				"be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or " +
				"claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"},
		{issuer("  claimMappings: {username: {expression: 'claims.?email.orValue(\"\")'}}\n"),
			"claims.email_verified must be used"},
		{issuer("  claimMappings: {username: {expression: claims.email}}\n  claimValidationRules: [{expression: " +
			"'claims.?email_verified.orValue(true) == true'}]\n"), ""},
		{issuer("  claimMappings: {username: {expression: 'claims.'}}\n"),
			`jwt[0].claimMappings.username.expression: Invalid value: "claims.": compilation failed: ERROR: ` +
				`<input>:1:8: Syntax error`},
		{issuer(name + "    extra: [{key: foo, valueExpression: ''}]\n"),
			`[jwt[0].claimMappings.extra[0].key: Invalid value: "foo": must be a domain-prefixed path (such as ` +
				`"acme.io/foo"), jwt[0].claimMappings.extra[0].valueExpression: Required value]`},
		{issuer(name + "    extra: [{key: a.k8s.io/X, valueExpression: claims.a}]\n"),
			`[jwt[0].claimMappings.extra[0].key: Invalid value: "a.k8s.io/X": must be lowercase, ` +
				`jwt[0].claimMappings.extra[0].key: Invalid value: "a.k8s.io/X": k8s.io, kubernetes.io and their ` +
				`subdomains are reserved for Kubernetes use]`},
		{issuer(name + "    uid: {claim: a, expression: claims.a}\n"),
			`jwt[0].claimMappings.uid: Invalid value: "": claim and expression can't both be set`},
		{issuer(name + "  claimValidationRules: [{}]\n"),
			"jwt[0].claimValidationRules[0]: Required value: claim or expression is required"},
		{issuer(name + "  claimValidationRules: [{claim: a, message: m}, {claim: a}]\n"),
			`[jwt[0].claimValidationRules[0].message: Invalid value: "m": may not be specified when claim is set, ` +
				`jwt[0].claimValidationRules[1].claim: Duplicate value: "a"]`},
		{issuer(name + "  claimValidationRules: [{expression: claims.a}]\n"),
			`jwt[0].claimValidationRules[0].expression: Invalid value: "claims.a": must evaluate to bool`},
		{issuer(name + "  userValidationRules: [{expression: ''}, {expression: 'user.nosuch == 1'}]\n"),
			"[jwt[0].userValidationRules[0].expression: Required value, jwt[0].userValidationRules[1].expression: " +
				"Invalid value: \"user.nosuch == 1\": compilation failed: ERROR: <input>:1:5: undefined field 'nosuch'"},
		{head + "jwt:\n- issuer: {url: 'https://i', audiences: [a]}\n" + name +
			"- issuer: {url: 'https://i', audiences: [a]}\n" + name, `jwt[1].issuer.url: Duplicate value: "https://i"`},
	} {
		config, err := ParseConfig([]byte(c.document))
		if err != nil {
			t.Errorf("%s\n%v", c.document, err)
			continue
		}
		_, errs := Validate(config, []string{"https://own"})
		got := ""
		if err := errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.document, got, c.want)
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for document, want := range map[string]string{
		"":                            "empty config data",
		"apiVersion: v1\nkind: Pod\n": "expected AuthenticationConfiguration",
		"apiVersion: apiserver.config.k8s.io/v2\nkind: " +
			"AuthenticationConfiguration\n": "expected AuthenticationConfiguration",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nnosuch: " +
			"1\n": `strict decoding error: unknown field "nosuch"`,
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: {}\n":      "cannot unmarshal",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: 1\njwt: 2": "already set in map",
	} {
		if _, err := ParseConfig([]byte(document)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", document, err, want)
		}
	}
}
