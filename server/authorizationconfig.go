package server

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/auth/authzconfig"
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

// AuthorizationConfig says how requests are authorized. Members of system:masters
// may do everything, whatever it says.
type AuthorizationConfig struct {
	// Modes are asked in order until one decides.
	Modes []string
	// PolicyFile is the file of mode ABAC.
	PolicyFile string
	Webhook    AccessWebhookConfig
	// ConfigFile is an AuthorizationConfiguration instead of the modes, whose changes
	// are followed. FlagsSet says that something was asked for that cannot be beside
	// it.
	ConfigFile string
	FlagsSet   bool
	// AlwaysAllowPaths need no permission: paths that are no resources, with a * at
	// the end for all that is below.
	AlwaysAllowPaths []string
	// AggregateClusterRoles keeps the rules of ClusterRoles that have an
	// aggregationRule, as kube-controller-manager does.
	AggregateClusterRoles bool
}

// AccessWebhookConfig names the webhook of mode Webhook.
type AccessWebhookConfig struct {
	// ConfigFile is its kubeconfig.
	ConfigFile string
	// Version of SubjectAccessReview that it speaks: v1 or v1beta1.
	Version string
	// AllowedTTL and RefusedTTL are how long answers are remembered; 0 remembers none.
	AllowedTTL, RefusedTTL time.Duration
}

// DefaultAuthorization is that of a cluster: kubelets by what their pods need,
// everybody by roles.
func DefaultAuthorization() AuthorizationConfig {
	return AuthorizationConfig{
		Modes:   []string{ModeNode, ModeRBAC},
		Webhook: AccessWebhookConfig{Version: "v1beta1", AllowedTTL: 5 * time.Minute, RefusedTTL: 30 * time.Second},
	}
}

// validate returns what is wrong with the configuration by itself.
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

// flags are the configuration that the modes stand for.
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

// errNotAtStart says that an authorizer cannot come while the server runs.
func errNotAtStart(mode string) error {
	return errors.New("authorizer type " + mode + " is not allowed if it was not enabled at initial server startup")
}
