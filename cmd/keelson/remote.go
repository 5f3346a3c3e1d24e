package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// remote is the server in the current context of a kubeconfig, with the credentials.
type remote struct {
	server string
	token  string
	client *http.Client
}

// kubeconfigFile is the part of a kubeconfig that is decoded: the certificates and tokens of contexts.
type kubeconfigFile struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string        `json:"name"`
		Cluster clusterConfig `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string     `json:"name"`
		User userConfig `json:"user"`
	} `json:"users"`
}

type clusterConfig struct {
	Server     string `json:"server"`
	CA         []byte `json:"certificate-authority-data"`
	CAFile     string `json:"certificate-authority"`
	ServerName string `json:"tls-server-name"`
}

type userConfig struct {
	Cert      []byte `json:"client-certificate-data"`
	CertFile  string `json:"client-certificate"`
	Key       []byte `json:"client-key-data"`
	KeyFile   string `json:"client-key"`
	Token     string `json:"token"`
	TokenFile string `json:"tokenFile"`
}

func newRemote(kubeconfig string) (*remote, error) {
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig %s: %w", kubeconfig, withoutPath(err))
	}
	var k kubeconfigFile
	if err := yaml.Unmarshal(content, &k); err != nil {
		return nil, fmt.Errorf("the kubeconfig %s: %w", kubeconfig, oneLine(err))
	}
	cluster, user, err := k.current()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %s: %w", kubeconfig, err)
	}
	r, err := connect(cluster, user, filepath.Dir(kubeconfig))
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %s: %w", kubeconfig, err)
	}
	return r, nil
}

func (k *kubeconfigFile) current() (cluster clusterConfig, user userConfig, err error) {
	for _, c := range k.Contexts {
		if c.Name != k.CurrentContext {
			continue
		}
		for i := range k.Clusters {
			if k.Clusters[i].Name == c.Context.Cluster {
				cluster = k.Clusters[i].Cluster
			}
		}
		for i := range k.Users {
			if k.Users[i].Name == c.Context.User {
				user = k.Users[i].User
			}
		}
	}
	if cluster.Server == "" {
		return cluster, user, errors.New("its current context names no server")
	}
	return cluster, user, nil
}

func connect(cluster clusterConfig, user userConfig, dir string) (*remote, error) {
	token := []byte(user.Token)
	for _, f := range []struct {
		data *[]byte
		file string
	}{{&cluster.CA, cluster.CAFile}, {&user.Cert, user.CertFile}, {&user.Key, user.KeyFile}, {&token, user.TokenFile}} {
		if len(*f.data) > 0 || f.file == "" {
			continue
		}
		path := f.file
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		var err error
		if *f.data, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.ServerName}
	if len(cluster.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(cluster.CA)
	}
	if len(user.Cert) > 0 {
		pair, err := tls.X509KeyPair(user.Cert, user.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &remote{
		server: strings.TrimRight(cluster.Server, "/"), token: strings.TrimSpace(string(token)),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment}},
	}, nil
}

// post returns the body of the response to a POST without a body. The caller closes it.
func (r *remote) post(ctx context.Context, path string) (io.ReadCloser, error) {
	return r.send(ctx, http.MethodPost, path, nil)
}

// call sends a request with a JSON document, or without one for nil, and decodes the response.
func (r *remote) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	response, err := r.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	return errors.Join(json.NewDecoder(response).Decode(out), response.Close())
}

// send returns the body of the response to a request. The caller closes it.
func (r *remote) send(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.server+path, body)
	if err != nil {
		return nil, err
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	w, err := r.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the server: %w", err)
	}
	if w.StatusCode == http.StatusOK {
		return w.Body, nil
	}
	const longestStatus = 64 << 10
	var status struct {
		Message string `json:"message"`
	}
	text, _ := io.ReadAll(io.LimitReader(w.Body, longestStatus)) // a part of the body is enough
	_ = w.Body.Close()
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(text))
	}
	return nil, fmt.Errorf("the server at %s answers %s: %s", r.server, w.Status, status.Message)
}
