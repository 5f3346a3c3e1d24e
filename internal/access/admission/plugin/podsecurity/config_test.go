package podsecurity

import (
	"strings"
	"testing"

	"k8s.io/pod-security-admission/api"
)

func TestConfig(t *testing.T) {
	const head = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"
	c, err := DecodeConfig([]byte(head + "defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}\n" +
		"exemptions: {usernames: [a, b], namespaces: [kube-system], runtimeClasses: [x.y]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := api.Policy{
		Enforce: api.LevelVersion{Level: api.LevelBaseline, Version: api.MajorMinorVersion(1, 30)},
		Warn:    api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()},
		Audit:   api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()},
	}
	if c.Defaults != want || len(c.Exemptions.Usernames) != 2 || c.Exemptions.Namespaces[0] != "kube-system" ||
		c.Exemptions.RuntimeClasses[0] != "x.y" {
		t.Errorf("%+v", c)
	}
	if c, err = DecodeConfig(nil); err != nil || !c.Defaults.FullyPrivileged() || !c.Defaults.Enforce.Latest() {
		t.Errorf("without a document: %+v, %v", c, err)
	}
	if _, err := DecodeConfig([]byte(strings.Replace(head, "/v1", "/v1beta1", 1))); err != nil {
		t.Errorf("v1beta1: %v", err)
	}
	for text, want := range map[string]string{
		strings.Replace(head, "/v1", "/v2", 1):        `no kind "PodSecurityConfiguration" is registered for version "pod-security.`,
		strings.Replace(head, "Configuration", "", 1): `no kind "PodSecurity" is registered for version "pod-security.`,
		head + "default: {}":                          `strict decoding error: unknown field "default"`,
		head + "defaults: {enforce: none}":            `defaults.enforce: Invalid value: "none": must be one of privileged`,
		head + "defaults: {audit-version: '1.30'}":    `defaults.audit-version: Invalid value: "1.30": must be`,
		head + "exemptions: {namespaces: [A]}":        `exemptions.namespaces[0]: Invalid value: "A": a lowercase RFC`,
		head + "exemptions: {namespaces: [a, a]}":     `exemptions.namespaces[1]: Duplicate value: "a"`,
		head + "exemptions: {runtimeClasses: [A_]}":   `exemptions.runtimeClasses[0]: Invalid value: "A_": a lowercase`,
		head + "exemptions: {usernames: ['']}":        `exemptions.usernames[0]: Invalid value: "": username must not`,
		head + "defaults: 3":                          "cannot unmarshal",
		"a: b\na: c":                                  "already set in map",
	} {
		if _, err := DecodeConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
