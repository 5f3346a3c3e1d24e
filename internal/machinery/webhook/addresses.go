package webhook

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// CredentialsFromKubeconfig returns a function that finds the credentials for the address of a webhook in the kubeconfig
// file of a WebhookAdmissionConfiguration. The names of users in it are addresses: "name.namespace.svc:8443", without the
// port if that is 443, or patterns such as "*.namespace.svc", "*.svc" and "*". The function returns empty credentials if
// no name matches; it never fails. read reads the file and the files named in it, as os.ReadFile does.
func CredentialsFromKubeconfig(
	file string, read func(path string) ([]byte, error),
) (func(address string) (Credentials, error), error) {
	k, err := readKubeconfig(file, read)
	if err != nil {
		return nil, err
	}
	users := map[string]Credentials{}
	for i := range k.AuthInfos {
		user := &k.AuthInfos[i]
		c, err := credentialsOf(&user.AuthInfo, filesIn(filepath.Dir(file), read))
		if err == nil {
			_, err = newClientAuth(c)
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

// namesOf returns the user names that match an address, the most specific first.
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
