package kubectlhistory

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kubeconfig "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// connection has the flags for the server, the user and the namespace. They have the same meaning as in kubectl.
type connection struct {
	kubeconfig, context, namespace string
	getenv                         func(string) string
}

// files returns the paths of the kubeconfig files, and whether at least one must exist.
func (c *connection) files() (paths []string, required bool) {
	if c.kubeconfig != "" {
		return []string{c.kubeconfig}, true
	}
	for _, path := range filepath.SplitList(c.getenv("KUBECONFIG")) {
		if path != "" {
			paths = append(paths, path)
		}
	}
	if len(paths) > 0 {
		return paths, false
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, false
	}
	return []string{filepath.Join(home, ".kube", "config")}, false
}

// load reads the kubeconfig files. If several entries have the same name, the first one is used, as in kubectl.
func (c *connection) load() (*kubeconfig.Config, error) {
	paths, required := c.files()
	merged, found := &kubeconfig.Config{}, false
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && !required {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the kubeconfig %s: %w", path, withoutPath(err))
		}
		var k kubeconfig.Config
		if err := yaml.Unmarshal(content, &k); err != nil {
			return nil, fmt.Errorf("the kubeconfig %s: %w", path, err)
		}
		merge(merged, &k, filepath.Dir(path))
		found = true
	}
	if !found {
		return nil, errors.New("there is no kubeconfig; name one with --kubeconfig, or with the variable KUBECONFIG")
	}
	return merged, nil
}

// merge adds the entries of k to merged. It makes relative paths in k absolute, starting from dir.
func merge(merged, k *kubeconfig.Config, dir string) {
	absolute := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	for i := range k.Clusters {
		absolute(&k.Clusters[i].Cluster.CertificateAuthority)
	}
	for i := range k.AuthInfos {
		user := &k.AuthInfos[i].AuthInfo
		absolute(&user.ClientCertificate)
		absolute(&user.ClientKey)
		absolute(&user.TokenFile)
		if user.Exec != nil && strings.ContainsRune(user.Exec.Command, filepath.Separator) {
			absolute(&user.Exec.Command)
		}
	}
	if merged.CurrentContext == "" {
		merged.CurrentContext = k.CurrentContext
	}
	merged.Clusters = append(merged.Clusters, k.Clusters...)
	merged.AuthInfos = append(merged.AuthInfos, k.AuthInfos...)
	merged.Contexts = append(merged.Contexts, k.Contexts...)
}

// connect returns a client of the server that the flags and the kubeconfig choose, and the namespace.
func (c *connection) connect(ctx context.Context) (cl *client, namespace string, err error) {
	k, err := c.load()
	if err != nil {
		return nil, "", err
	}
	name := c.context
	if name == "" {
		name = k.CurrentContext
	}
	if name == "" {
		return nil, "", errors.New("the kubeconfig has no current context; choose one with --context")
	}
	i := slices.IndexFunc(k.Contexts, func(e kubeconfig.NamedContext) bool { return e.Name == name })
	if i < 0 {
		return nil, "", fmt.Errorf("the kubeconfig has no context %q", name)
	}
	chosen := k.Contexts[i].Context
	i = slices.IndexFunc(k.Clusters, func(e kubeconfig.NamedCluster) bool { return e.Name == chosen.Cluster })
	if i < 0 {
		return nil, "", fmt.Errorf("the context %q of the kubeconfig names a cluster %q, which is not there", name, chosen.Cluster)
	}
	cluster := k.Clusters[i].Cluster
	var user kubeconfig.AuthInfo
	if i = slices.IndexFunc(k.AuthInfos, func(e kubeconfig.NamedAuthInfo) bool { return e.Name == chosen.AuthInfo }); i >= 0 {
		user = k.AuthInfos[i].AuthInfo
	} else if chosen.AuthInfo != "" {
		return nil, "", fmt.Errorf("the context %q of the kubeconfig names a user %q, who is not there", name, chosen.AuthInfo)
	}
	namespace = c.namespace
	if namespace == "" {
		namespace = chosen.Namespace
	}
	if namespace == "" {
		namespace = "default"
	}
	if strings.ContainsAny(namespace, "/?#%") {
		return nil, "", fmt.Errorf("%q is not the name of a namespace", namespace)
	}
	cl, err = newClient(ctx, &cluster, &user)
	if err != nil {
		return nil, "", fmt.Errorf("the context %q of the kubeconfig: %w", name, err)
	}
	return cl, namespace, nil
}

func newClient(ctx context.Context, cluster *kubeconfig.Cluster, user *kubeconfig.AuthInfo) (*client, error) {
	base, err := url.Parse(strings.TrimRight(cluster.Server, "/"))
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, fmt.Errorf("the server %q is not a URL of http or https", cluster.Server)
	}
	if user.AuthProvider != nil {
		return nil, errors.New("users with auth-provider are not supported; kubectl does not know them any more either")
	}
	if user.Exec != nil {
		if err := runCredentialPlugin(ctx, user); err != nil {
			return nil, err
		}
	}
	token := []byte(user.Token)
	for _, f := range []struct {
		data *[]byte
		file string
	}{
		{&cluster.CertificateAuthorityData, cluster.CertificateAuthority}, {&user.ClientCertificateData, user.ClientCertificate},
		{&user.ClientKeyData, user.ClientKey}, {&token, user.TokenFile},
	} {
		if len(*f.data) > 0 || f.file == "" {
			continue
		}
		if *f.data, err = os.ReadFile(f.file); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", f.file, withoutPath(err))
		}
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: cluster.TLSServerName, InsecureSkipVerify: cluster.InsecureSkipTLSVerify,
	}
	if len(cluster.CertificateAuthorityData) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(cluster.CertificateAuthorityData) {
			return nil, errors.New("its certificate-authority is no certificate in PEM format")
		}
	}
	if len(user.ClientCertificateData) > 0 {
		pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	proxy := http.ProxyFromEnvironment
	if cluster.ProxyURL != "" {
		u, err := url.Parse(cluster.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("its proxy-url: %w", err)
		}
		proxy = http.ProxyURL(u)
	}
	header := http.Header{}
	switch text := strings.TrimSpace(string(token)); {
	case text != "":
		header.Set("Authorization", "Bearer "+text)
	case user.Username != "":
		q := http.Request{Header: header}
		q.SetBasicAuth(user.Username, user.Password)
	}
	if user.Impersonate != "" {
		header.Set("Impersonate-User", user.Impersonate)
		header["Impersonate-Group"] = user.ImpersonateGroups
		if user.ImpersonateUID != "" {
			header.Set("Impersonate-Uid", user.ImpersonateUID)
		}
		for name, values := range user.ImpersonateUserExtra {
			header[http.CanonicalHeaderKey("Impersonate-Extra-"+url.PathEscape(name))] = values
		}
	}
	transport := &http.Transport{
		TLSClientConfig: config, Proxy: proxy, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}, // a watch may be silent for long
	}
	return &client{base: base.String(), header: header, http: &http.Client{Transport: transport}}, nil
}

// runCredentialPlugin runs the credential plug-in of a user in the kubeconfig, and sets the credentials that it
// prints.
func runCredentialPlugin(ctx context.Context, user *kubeconfig.AuthInfo) error {
	e := user.Exec
	info, err := json.Marshal(map[string]any{
		"apiVersion": e.APIVersion, "kind": "ExecCredential", "spec": map[string]any{"interactive": false},
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, e.Command, e.Args...)
	cmd.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+string(info))
	for _, v := range e.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the program %s for the credentials of the user: %w: %s", e.Command, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var answer struct {
		Status struct {
			Token       string `json:"token"`
			Certificate string `json:"clientCertificateData"`
			Key         string `json:"clientKeyData"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return fmt.Errorf("the program %s for the credentials of the user prints no ExecCredential: %w", e.Command, err)
	}
	s := answer.Status
	if s.Token == "" && s.Certificate == "" {
		return fmt.Errorf("the program %s for the credentials of the user prints neither a token nor a certificate", e.Command)
	}
	if s.Token != "" {
		user.Token = s.Token
	}
	if s.Certificate != "" {
		user.ClientCertificateData, user.ClientKeyData = []byte(s.Certificate), []byte(s.Key)
	}
	return nil
}

// withoutPath returns the reason of an error of the operating system, without the operation and the path.
func withoutPath(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
