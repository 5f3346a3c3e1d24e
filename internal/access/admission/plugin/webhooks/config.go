package webhooks

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// Config is the configuration of one of the two plug-ins.
type Config struct {
	// Kubeconfig is a file with the credentials for webhooks, by their addresses (see
	// webhook.CredentialsFromKubeconfig). Empty means that there are none.
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

// configure returns a function that applies c to the webhooks of one kind, from the next call on.
func (p *Plugins) configure(of *configurations, c Config, read func(string) ([]byte, error)) (use func(), err error) {
	o := p.o.Calls
	if c.Kubeconfig != "" {
		if o.Credentials, err = webhook.CredentialsFromKubeconfig(c.Kubeconfig, read); err != nil {
			return nil, err
		}
	}
	return func() {
		if of.clients != nil {
			of.clients.SetCredentials(o.Credentials)
			return
		}
		const most = 512
		of.clients = webhook.NewPool(o, most)
	}, nil
}
