package certs

import (
	"encoding/base64"
	"fmt"
)

// Kubeconfig returns a kubeconfig of the administrator. ca is the certificate by which clients verify the server. The
// administrator has the token or, if that is "", the certificate.
func Kubeconfig(server string, ca []byte, admin Pair, token string) []byte {
	encode := base64.StdEncoding.EncodeToString
	credentials := "token: " + token
	if token == "" {
		credentials = fmt.Sprintf("client-certificate-data: %s\n    client-key-data: %s", encode(admin.Cert), encode(admin.Key))
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: keelson
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %s
  user:
    %s
contexts:
- name: keelson
  context:
    cluster: keelson
    user: %[3]s
current-context: keelson
`, server, encode(ca), AdminUser, credentials)
}
