package config

import "time"

// Values of Authorization.Modes.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeABAC        = "ABAC"
	ModeWebhook     = "Webhook"
	ModeRBAC        = "RBAC"
	ModeNode        = "Node"
)

// Authorization configures authorization. Members of system:masters may do everything regardless of it.
type Authorization struct {
	// Modes are the authorizers; they are called in order until one decides. The default is ModeNode, ModeRBAC
	// (--authorization-mode).
	Modes []string `flag:"authorization-mode"`
	// PolicyFile is the policy file of ModeABAC, with a JSON document in each line (--authorization-policy-file).
	PolicyFile string `flag:"authorization-policy-file"`
	// Webhook configures the webhook of ModeWebhook.
	Webhook AccessWebhook
	// ConfigFile is the path of an AuthorizationConfiguration, which replaces Modes and is reloaded when it changes
	// (--authorization-config).
	ConfigFile string `flag:"authorization-config"`
	// AlwaysAllowPaths are non-resource paths that need no permission. A final * matches every path with that prefix
	// (--authorization-always-allow-paths).
	AlwaysAllowPaths []string `flag:"authorization-always-allow-paths"`
}

// AccessWebhook configures the webhook of ModeWebhook.
type AccessWebhook struct {
	// ConfigFile is the kubeconfig of the webhook (--authorization-webhook-config-file).
	ConfigFile string `flag:"authorization-webhook-config-file"`
	// Version is the version of SubjectAccessReview: v1 or v1beta1. The default is v1beta1, as in kube-apiserver
	// (--authorization-webhook-version).
	Version string `flag:"authorization-webhook-version"`
	// AllowedTTL is how long a response that allows a request is cached. The default is 5 minutes; with None such responses
	// are not cached (--authorization-webhook-cache-authorized-ttl).
	AllowedTTL time.Duration `flag:"authorization-webhook-cache-authorized-ttl"`
	// RefusedTTL is how long a response that does not allow a request is cached. The default is 30 seconds; with None such
	// responses are not cached (--authorization-webhook-cache-unauthorized-ttl).
	RefusedTTL time.Duration `flag:"authorization-webhook-cache-unauthorized-ttl"`
}
