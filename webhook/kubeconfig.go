package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// FromKubeconfig returns a client of the webhook that a kubeconfig file names, as
// flags such as --authorization-webhook-config-file do: the cluster of its current context
// is the webhook, and the user is what the server shows to it. Paths in the file
// are relative to it. Users that need a program or a plug-in to sign in are refused.
func FromKubeconfig(file string, o Options) (*Client, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	k := kubeconfig{}
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c, err := k.client(filepath.Dir(file), o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// kubeconfig is what a webhook needs of the file.
type kubeconfig struct {
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
}

type namedCluster struct {
	Name    string        `json:"name"`
	Cluster configCluster `json:"cluster"`
}

type configCluster struct {
	Server     string `json:"server"`
	Insecure   bool   `json:"insecure-skip-tls-verify"`
	CAFile     string `json:"certificate-authority"`
	CAData     []byte `json:"certificate-authority-data"`
	ServerName string `json:"tls-server-name"`
	ProxyURL   string `json:"proxy-url"`
}

type namedUser struct {
	Name string     `json:"name"`
	User configUser `json:"user"`
}

type configUser struct {
	Token           string `json:"token"`
	TokenFile       string `json:"tokenFile"`
	Username        string `json:"username"`
	Password        string `json:"password"`
	CertificateFile string `json:"client-certificate"`
	Certificate     []byte `json:"client-certificate-data"`
	KeyFile         string `json:"client-key"`
	Key             []byte `json:"client-key-data"`
	Exec            any    `json:"exec"`
	AuthProvider    any    `json:"auth-provider"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

func (k *kubeconfig) client(dir string, o Options) (*Client, error) {
	cluster, user, err := k.current()
	if err != nil {
		return nil, err
	}
	if cluster.ProxyURL != "" {
		return nil, errors.New("proxy-url is not supported for webhooks")
	}
	e, err := cluster.endpoint(dir)
	if err != nil {
		return nil, err
	}
	e.dial = o.dialer()
	credentials, err := user.credentials(dir)
	if err != nil {
		return nil, err
	}
	o.Credentials = func(string) (Credentials, error) { return credentials, nil }
	return e.client("", o)
}

func (k *kubeconfig) current() (configCluster, configUser, error) {
	var cluster configCluster
	var user configUser
	if k.CurrentContext == "" {
		return cluster, user, errors.New("invalid configuration: no current-context")
	}
	for _, c := range k.Contexts {
		if c.Name != k.CurrentContext {
			continue
		}
		found := false
		for _, e := range k.Clusters {
			if e.Name == c.Context.Cluster {
				cluster, found = e.Cluster, true
			}
		}
		if !found {
			return cluster, user, fmt.Errorf("invalid configuration: cluster %q does not exist", c.Context.Cluster)
		}
		found = c.Context.User == ""
		for _, e := range k.Users {
			if e.Name == c.Context.User {
				user, found = e.User, true
			}
		}
		if !found {
			return cluster, user, fmt.Errorf("invalid configuration: user %q does not exist", c.Context.User)
		}
		return cluster, user, nil
	}
	return cluster, user, fmt.Errorf("invalid configuration: context %q does not exist", k.CurrentContext)
}

func (c configCluster) endpoint(dir string) (endpoint, error) {
	u, err := url.Parse(c.Server)
	if err != nil {
		return endpoint{}, err
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return endpoint{}, fmt.Errorf("invalid configuration: the server %q is no URL of http or https", c.Server)
	}
	e := endpoint{scheme: u.Scheme, host: u.Host, path: u.Path, serverName: c.ServerName, insecure: c.Insecure, caBundle: c.CAData, http2: true}
	if len(e.caBundle) == 0 && c.CAFile != "" {
		if e.caBundle, err = os.ReadFile(from(dir, c.CAFile)); err != nil {
			return endpoint{}, err
		}
	}
	if e.insecure && len(e.caBundle) > 0 {
		return endpoint{}, errors.New("specifying a root certificates file with the insecure flag is not allowed")
	}
	return e, nil
}

func (u configUser) credentials(dir string) (Credentials, error) {
	if u.Exec != nil || u.AuthProvider != nil {
		return Credentials{}, errors.New("users with exec or auth-provider are not supported for webhooks")
	}
	c := Credentials{Token: u.Token, Username: u.Username, Password: u.Password, Certificate: u.Certificate, Key: u.Key}
	if c.Token == "" {
		c.TokenFile = from(dir, u.TokenFile)
	}
	if len(c.Certificate) == 0 && u.CertificateFile != "" {
		c.CertificateFile, c.KeyFile = from(dir, u.CertificateFile), from(dir, u.KeyFile)
	}
	return c, nil
}

// from returns what a path in a file of the directory names, "" for none.
func from(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
