package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// FromKubeconfig returns a client for a kubeconfig file of a flag such as --authorization-webhook-config-file: the cluster
// of the current context is the webhook, and the user of the context has the credentials. Relative paths begin at the
// directory of the file. Users with exec or auth-provider are an error, and so is proxy-url. read reads the file and the
// files named in it, as os.ReadFile does.
func FromKubeconfig(file string, read func(path string) ([]byte, error), o Options) (*Client, error) {
	k, err := readKubeconfig(file, read)
	if err != nil {
		return nil, err
	}
	c, err := k.client(filesIn(filepath.Dir(file), read), o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// kubeconfig is the content of a kubeconfig file.
type kubeconfig clientcmd.Config

func readKubeconfig(file string, read reader) (*kubeconfig, error) {
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	k := &kubeconfig{}
	if err := yaml.Unmarshal(text, k); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return k, nil
}

// reader returns the content of a file named in a kubeconfig file.
type reader func(path string) ([]byte, error)

// filesIn returns a reader for which relative paths begin at dir. The content of the path "" is empty.
func filesIn(dir string, read reader) reader {
	return func(path string) ([]byte, error) {
		if path == "" {
			return nil, nil
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return read(path)
	}
}

func (k *kubeconfig) client(read reader, o Options) (*Client, error) {
	cluster, user, err := k.current()
	if err != nil {
		return nil, err
	}
	if cluster.ProxyURL != "" {
		return nil, errors.New("proxy-url is not supported for webhooks")
	}
	e, err := endpointOf(&cluster, read)
	if err != nil {
		return nil, err
	}
	e.dial = o.dialer()
	credentials, err := credentialsOf(&user, read)
	if err != nil {
		return nil, err
	}
	o.Credentials = func(string) (Credentials, error) { return credentials, nil }
	return e.client("", o)
}

// current returns the cluster and the user of the current context. The user is empty if the context names none.
func (k *kubeconfig) current() (clientcmd.Cluster, clientcmd.AuthInfo, error) {
	var cluster clientcmd.Cluster
	var user clientcmd.AuthInfo
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
		found = c.Context.AuthInfo == ""
		for _, e := range k.AuthInfos {
			if e.Name == c.Context.AuthInfo {
				user, found = e.AuthInfo, true
			}
		}
		if !found {
			return cluster, user, fmt.Errorf("invalid configuration: user %q does not exist", c.Context.AuthInfo)
		}
		return cluster, user, nil
	}
	return cluster, user, fmt.Errorf("invalid configuration: context %q does not exist", k.CurrentContext)
}

// endpointOf returns the endpoint of a cluster, without a dial function.
func endpointOf(c *clientcmd.Cluster, read reader) (endpoint, error) {
	u, err := url.Parse(c.Server)
	if err != nil {
		return endpoint{}, err
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return endpoint{}, fmt.Errorf("invalid configuration: the server %q is not a URL of http or https", c.Server)
	}
	e := endpoint{
		scheme: u.Scheme, host: u.Host, path: u.Path, serverName: c.TLSServerName, insecure: c.InsecureSkipTLSVerify,
		caBundle: c.CertificateAuthorityData, http2: true,
	}
	if len(e.caBundle) == 0 {
		if e.caBundle, err = read(c.CertificateAuthority); err != nil {
			return endpoint{}, err
		}
	}
	if e.insecure && len(e.caBundle) > 0 {
		return endpoint{}, errors.New("specifying a root certificates file with the insecure flag is not allowed")
	}
	return e, nil
}

// credentialsOf returns the credentials of a user.
func credentialsOf(u *clientcmd.AuthInfo, read reader) (Credentials, error) {
	if u.Exec != nil || u.AuthProvider != nil {
		return Credentials{}, errors.New("users with exec or auth-provider are not supported for webhooks")
	}
	c := Credentials{
		Token: u.Token, Username: u.Username, Password: u.Password, Certificate: u.ClientCertificateData,
		Key: u.ClientKeyData,
	}
	if c.Token == "" {
		text, err := read(u.TokenFile)
		if err != nil {
			return Credentials{}, err
		}
		c.Token = strings.TrimSpace(string(text))
	}
	if len(c.Certificate) == 0 && u.ClientCertificate != "" {
		var err error
		if c.Certificate, err = read(u.ClientCertificate); err == nil {
			c.Key, err = read(u.ClientKey)
		}
		if err != nil {
			return Credentials{}, err
		}
	}
	return c, nil
}
