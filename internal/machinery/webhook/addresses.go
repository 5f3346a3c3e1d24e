package webhook

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// CredentialsFromKubeconfig returns the credentials of a kubeconfig file by the address of a webhook. The names of its
// users are addresses, as a WebhookAdmissionConfiguration wants it: "name.namespace.svc:8443", the same without the port
// if that is 443, and "*.namespace.svc", "*.svc" and "*" for many. A webhook without an entry gets no credentials. read
// reads the file and those that it names, as os.ReadFile does.
func CredentialsFromKubeconfig(
	file string, read func(path string) ([]byte, error),
) (func(address string) (Credentials, error), error) {
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	k := kubeconfig{}
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	users := map[string]Credentials{}
	for i := range k.AuthInfos {
		user := &k.AuthInfos[i]
		c, err := credentialsOf(&user.AuthInfo, filesIn(filepath.Dir(file), read))
		if err == nil {
			_, err = newShown(c)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: user %q: %w", file, user.Name, err)
		}
		users[user.Name] = c
	}
	return func(address string) (Credentials, error) {
		for _, name := range namesOf(address) {
			if user, ok := users[name]; ok {
				return user, nil
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
