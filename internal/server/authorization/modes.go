package authorization

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/authzconfig"
)

// ofModes returns the configuration that the modes are equivalent to.
func ofModes(c *config.Authorization) *apiserver.AuthorizationConfiguration {
	const name, timeout = "default", 30 * time.Second
	out := &apiserver.AuthorizationConfiguration{}
	for _, mode := range c.Modes {
		a := apiserver.AuthorizerConfiguration{Type: mode, Name: authzconfig.NameOf(mode)}
		if mode == config.ModeWebhook {
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
