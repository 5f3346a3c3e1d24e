package server

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authzconfig"
)

// Names of --authorization-mode.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeABAC        = "ABAC"
	ModeWebhook     = "Webhook"
	ModeRBAC        = "RBAC"
	ModeNode        = "Node"
)

// AuthorizationConfig configures authorization. Members of system:masters may do everything regardless of it.
type AuthorizationConfig struct {
	// Modes are called in order until one decides.
	Modes []string
	// PolicyFile is the policy file of mode ABAC.
	PolicyFile string
	Webhook    AccessWebhookConfig
	// ConfigFile is the path of an AuthorizationConfiguration, which replaces Modes and is reloaded when it changes.
	// FlagsSet is true if a flag was set that cannot be combined with it.
	ConfigFile string
	FlagsSet   bool
	// AlwaysAllowPaths are non-resource paths that need no permission. A final * matches every path with that
	// prefix.
	AlwaysAllowPaths []string
}

// AccessWebhookConfig configures the webhook of mode Webhook.
type AccessWebhookConfig struct {
	// ConfigFile is the kubeconfig of the webhook.
	ConfigFile string
	// Version is the version of SubjectAccessReview: v1 or v1beta1.
	Version string
	// AllowedTTL and RefusedTTL are how long responses are cached. 0 disables caching.
	AllowedTTL, RefusedTTL time.Duration
}

// DefaultAuthorization returns the configuration of a cluster: modes Node and RBAC.
func DefaultAuthorization() AuthorizationConfig {
	return AuthorizationConfig{
		Modes:   []string{ModeNode, ModeRBAC},
		Webhook: AccessWebhookConfig{Version: "v1beta1", AllowedTTL: 5 * time.Minute, RefusedTTL: 30 * time.Second},
	}
}

// validate returns the errors of the configuration that can be found without reading files.
func (c *AuthorizationConfig) validate() []error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ConfigFile != "" {
		if c.FlagsSet {
			add("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* " +
				"flags are defined")
		}
		return errs
	}
	if len(c.Modes) == 0 {
		add("at least one authorization-mode must be passed")
	}
	for i, mode := range c.Modes {
		if !authzconfig.IsType(mode) {
			add("authorization-mode %q is not a valid mode", mode)
		}
		if slices.Contains(c.Modes[:i], mode) {
			add("authorization-mode %q has mode specified more than once", c.Modes)
		}
	}
	has := func(mode string) bool { return slices.Contains(c.Modes, mode) }
	switch {
	case has(ModeABAC) && c.PolicyFile == "":
		add("authorization-mode ABAC's authorization policy file not passed")
	case !has(ModeABAC) && c.PolicyFile != "":
		add("cannot specify --authorization-policy-file without mode ABAC")
	}
	switch {
	case has(ModeWebhook) && c.Webhook.ConfigFile == "":
		add("authorization-mode Webhook's authorization config file not passed")
	case !has(ModeWebhook) && c.Webhook.ConfigFile != "":
		add("cannot specify --authorization-webhook-config-file without mode Webhook")
	}
	return errs
}

// flags returns the configuration that the modes are equivalent to.
func (c *AuthorizationConfig) flags() *apiserver.AuthorizationConfiguration {
	const name, timeout = "default", 30 * time.Second
	out := &apiserver.AuthorizationConfiguration{}
	for _, mode := range c.Modes {
		a := apiserver.AuthorizerConfiguration{Type: mode, Name: authzconfig.NameOf(mode)}
		if mode == ModeWebhook {
			keepAllowed, keepRefused := c.Webhook.AllowedTTL != 0, c.Webhook.RefusedTTL != 0
			a.Name = name
			a.Webhook = &apiserver.WebhookConfiguration{
				AuthorizedTTL: metav1.Duration{Duration: c.Webhook.AllowedTTL}, CacheAuthorizedRequests: &keepAllowed,
				UnauthorizedTTL: metav1.Duration{Duration: c.Webhook.RefusedTTL}, CacheUnauthorizedRequests: &keepRefused,
				Timeout:                    metav1.Duration{Duration: timeout},
				SubjectAccessReviewVersion: c.Webhook.Version, FailurePolicy: apiserver.FailurePolicyNoOpinion,
				ConnectionInfo: apiserver.WebhookConnectionInfo{
					Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &c.Webhook.ConfigFile,
				},
			}
		}
		out.Authorizers = append(out.Authorizers, a)
	}
	return out
}

// errNotAtStart is the error of a changed configuration with an authorizer that only a restart can add.
func errNotAtStart(mode string) error {
	return errors.New("authorizer type " + mode + " is not allowed if it was not enabled at initial server startup")
}
