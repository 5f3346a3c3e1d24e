package certs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Names of clusters and their contexts in a kubeconfig: one for clients on the server's machine, one for all
// others.
const (
	ClusterName       = "keelson"
	RemoteClusterName = "keelson-remote"
)

// Kubeconfig is a kubeconfig of a server for one user.
type Kubeconfig struct {
	// Server is the URL of the server. Remote is the URL for clients on other machines, which a second context uses; it may be
	// empty.
	Server, Remote string
	// ServerName is the name in the certificate at Server, if it is not valid for the host of the URL; otherwise empty.
	ServerName string
	// CA are the certificates by which clients verify the server, PEM.
	CA   []byte
	User string
	// Token is the user's token. If it is "", the user authenticates with Certificate.
	Token       string
	Certificate Pair
}

// Bytes returns the kubeconfig as YAML.
func (k *Kubeconfig) Bytes() []byte {
	encode := base64.StdEncoding.EncodeToString
	user := quoted(k.User)
	credentials := "token: " + string(quoted(k.Token))
	if k.Token == "" {
		credentials = fmt.Sprintf("client-certificate-data: %s\n    client-key-data: %s",
			encode(k.Certificate.Cert), encode(k.Certificate.Key))
	}
	var clusters, contexts []byte
	for _, c := range []struct{ name, server string }{{ClusterName, k.Server}, {RemoteClusterName, k.Remote}} {
		if c.server == "" {
			continue
		}
		clusters = fmt.Appendf(clusters, `
- name: %s
  cluster:
    server: %s
    certificate-authority-data: %s`, c.name, quoted(c.server), encode(k.CA))
		if c.server == k.Server && k.ServerName != "" {
			clusters = fmt.Appendf(clusters, "\n    tls-server-name: %s", quoted(k.ServerName))
		}
		contexts = fmt.Appendf(contexts, `
- name: %s
  context:
    cluster: %[1]s
    user: %s`, c.name, user)
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:%s
users:
- name: %s
  user:
    %s
contexts:%s
current-context: %s
`, clusters, user, credentials, contexts, ClusterName)
}

// quoted returns any text as a YAML string.
func quoted(text string) []byte {
	out, _ := json.Marshal(text) // a string in JSON is one in YAML; it cannot fail
	return out
}
