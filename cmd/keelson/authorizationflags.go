package main

import (
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// authorizationFlags adds the flags of authorization.
func authorizationFlags(f *pflag.FlagSet, c *config.Authorization) {
	f.StringSliceVar(
		&c.Modes, "authorization-mode", c.Modes,
		"authorizers in the order in which they are asked: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node",
	)
	f.StringVar(
		&c.PolicyFile, "authorization-policy-file", "", "file of the policies of mode ABAC, a JSON document a line",
	)
	f.StringVar(
		&c.Webhook.ConfigFile, "authorization-webhook-config-file", "", "kubeconfig of the webhook of mode Webhook",
	)
	f.StringVar(
		&c.Webhook.Version, "authorization-webhook-version", c.Webhook.Version,
		"version of SubjectAccessReview that the webhook speaks: v1 or v1beta1",
	)
	f.DurationVar(
		&c.Webhook.AllowedTTL, "authorization-webhook-cache-authorized-ttl", c.Webhook.AllowedTTL,
		"how long an answer of the webhook that allows is remembered",
	)
	f.DurationVar(
		&c.Webhook.RefusedTTL, "authorization-webhook-cache-unauthorized-ttl", c.Webhook.RefusedTTL,
		"how long an answer of the webhook that does not allow is remembered",
	)
	f.StringVar(
		&c.ConfigFile, "authorization-config", "",
		"file of the AuthorizationConfiguration that names the authorizers, instead of --authorization-mode and --authorization-webhook-*; its changes are followed",
	)
	f.StringSliceVar(
		&c.AlwaysAllowPaths, "authorization-always-allow-paths", nil,
		"paths that everybody may use, such as /healthz; none of them is a resource, and a * at the end stands for all that is below",
	)
}
