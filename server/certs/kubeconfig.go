package certs

import (
	"encoding/base64"
	"fmt"
)

// Kubeconfig returns a kubeconfig of the administrator. ca is the certificate by which clients verify the server.
func Kubeconfig(server string, ca []byte, admin Pair) []byte {
	encode := base64.StdEncoding.EncodeToString
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
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: keelson
  context:
    cluster: keelson
    user: %[3]s
current-context: keelson
`, server, encode(ca), AdminUser, encode(admin.Cert), encode(admin.Key))
}
