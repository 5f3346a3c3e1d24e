package server

import (
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/toleration"
	"github.com/keelson-dev/keelson/internal/controller/serviceallocator"
	"github.com/keelson-dev/keelson/internal/machinery/audit/sink"
	auditlog "github.com/keelson-dev/keelson/internal/machinery/audit/sink/log"
	auditwebhook "github.com/keelson-dev/keelson/internal/machinery/audit/sink/webhook"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// TestConfigKnowsTheParts checks names and defaults that package config repeats, because it imports no part of the
// server.
func TestConfigKnowsTheParts(t *testing.T) {
	modes := []string{config.AuditBatch, config.AuditBlocking, config.AuditBlockingStrict}
	formats := []string{config.AuditFormatLegacy, config.AuditFormatJSON}
	if !slices.Equal(modes, sink.Modes()) || !slices.Equal(formats, auditlog.Formats()) {
		t.Errorf("modes %q, formats %q", sink.Modes(), auditlog.Formats())
	}
	c := config.Default()
	if c.Storage.Etcd.Prefix != etcd.DefaultPrefix || c.Audit.Webhook.InitialBackoff != auditwebhook.DefaultBackoff ||
		c.Network.ServiceNodePortRange != serviceallocator.DefaultNodePorts.String() ||
		c.Admission.NotReadyTolerationSeconds != toleration.DefaultSeconds ||
		c.Admission.UnreachableTolerationSeconds != toleration.DefaultSeconds {
		t.Errorf("%+v", c)
	}
}

// TestGivenFlagsExcludeFiles checks that a given flag excludes a configuration file even with its default value.
func TestGivenFlagsExcludeFiles(t *testing.T) {
	for flag, test := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"oidc-username-claim": {
			func(c *config.Config) { c.Authentication.ConfigFile = "x" },
			"authentication-config file and oidc-* flags are mutually exclusive",
		},
		"oidc-signing-algs": {
			func(*config.Config) {}, "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
		},
		"authorization-webhook-version": {
			func(c *config.Config) { c.Authorization.ConfigFile = "x" },
			"--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
		},
	} {
		c := defaultSettings()
		test.change(&c.Config)
		if err := c.validate(); err != nil {
			t.Errorf("without --%s: %v", flag, err)
		}
		c.FlagGiven = func(name string) bool { return name == flag }
		if err := c.validate(); err == nil || config.CommandLine(err) != test.want {
			t.Errorf("with --%s: %v", flag, err)
		}
	}
}
