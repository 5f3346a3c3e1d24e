package webhooks

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/webhook"
)

// Config is the configuration of one of the two plug-ins.
type Config struct {
	// Kubeconfig is a file with the credentials that webhooks are shown, by their addresses (see
	// webhook.CredentialsFromKubeconfig). Empty means that none are shown.
	Kubeconfig string
}

// configVersions are the versions of WebhookAdmission that kube-apiserver reads, with the name of the kind in each.
var configVersions = map[string]string{
	"apiserver.config.k8s.io/v1":       "WebhookAdmissionConfiguration",
	"apiserver.config.k8s.io/v1alpha1": "WebhookAdmission",
}

// DecodeConfig reads a WebhookAdmissionConfiguration; nil is an empty one.
func DecodeConfig(raw []byte) (Config, error) {
	if raw == nil {
		return Config{}, nil
	}
	var document struct {
		APIVersion     string `json:"apiVersion"`
		Kind           string `json:"kind"`
		KubeConfigFile string `json:"kubeConfigFile"`
	}
	if err := yaml.UnmarshalStrict(raw, &document); err != nil {
		return Config{}, err
	}
	if kind, ok := configVersions[document.APIVersion]; !ok || kind != document.Kind {
		return Config{}, fmt.Errorf(
			"it is of kind %q of %q, not a WebhookAdmissionConfiguration of apiserver.config.k8s.io/v1", document.Kind,
			document.APIVersion,
		)
	}
	return Config{document.KubeConfigFile}, nil
}

// clients returns the pool through which the webhooks of a plug-in are called.
func (p *Plugins) clients(c Config) (*webhook.Pool, error) {
	o := p.o.Calls
	if c.Kubeconfig != "" {
		credentials, err := webhook.CredentialsFromKubeconfig(c.Kubeconfig)
		if err != nil {
			return nil, err
		}
		o.Credentials = credentials
	}
	const most = 512
	return webhook.NewPool(o, most), nil
}
