package webhook

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// CredentialsFromKubeconfig returns the credentials of a kubeconfig file by the address of a webhook. The names of its
// users are addresses, as a WebhookAdmissionConfiguration wants it: "name.namespace.svc:8443", the same without the port
// if that is 443, and "*.namespace.svc", "*.svc" and "*" for many. A webhook without an entry gets no credentials.
func CredentialsFromKubeconfig(file string) (func(address string) (Credentials, error), error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	k := kubeconfig{}
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	users := map[string]*clientcmd.AuthInfo{}
	for i := range k.AuthInfos {
		users[k.AuthInfos[i].Name] = &k.AuthInfos[i].AuthInfo
	}
	dir := filepath.Dir(file)
	for name, user := range users {
		if _, err := credentialsOf(user, dir); err != nil {
			return nil, fmt.Errorf("%s: user %q: %w", file, name, err)
		}
	}
	return func(address string) (Credentials, error) {
		for _, name := range namesOf(address) {
			if user := users[name]; user != nil {
				return credentialsOf(user, dir)
			}
		}
		return Credentials{}, nil
	}, nil
}

// namesOf returns the names of users that stand for an address, the most exact one first.
func namesOf(address string) []string {
	names := []string{address}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	} else if port == "443" {
		names = append(names, host)
	}
	for _, rest, more := strings.Cut(host, "."); more; _, rest, more = strings.Cut(rest, ".") {
		names = append(names, "*."+rest)
	}
	return append(names, "*")
}
