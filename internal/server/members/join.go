package members

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
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

const (
	// requestTime limits each request of a joining server, and of one member to another.
	requestTime = 10 * time.Second
	// joinPause is the time between two requests of a joining server.
	joinPause = 500 * time.Millisecond
	// maxBody limits the body of an answer.
	maxBody = 4 << 20
	// shortWait and longWait are the times between two tries to join.
	shortWait, longWait = time.Second, 10 * time.Second
)

// joinRequest is the body of a request for the keys of the cluster.
type joinRequest struct {
	Name, Kubernetes string
	Flags            map[string]string
}

// joinAnswer is the answer to it.
type joinAnswer struct {
	Files    map[string][]byte // by path in the data directory
	Peers    []string          // URLs at which the members reach each other
	Warnings []string
}

// permanentError is an error after which trying again is of no use.
type permanentError struct{ error }

// Unwrap returns the reason.
func (e permanentError) Unwrap() error { return e.error }

// fetch gets the keys of the cluster from the server of Members.Join, and writes them. While that server cannot be reached, it tries
// again until ctx ends.
func (c *Cluster) fetch(ctx context.Context) error {
	return c.untilDone(ctx, "cannot get the keys of the cluster from "+c.Config.Storage.Members.Join, c.fetchOnce)
}

// untilDone calls a function until it returns nil or a permanentError, or ctx ends.
func (c *Cluster) untilDone(ctx context.Context, what string, do func(context.Context) error) error {
	for wait := shortWait; ; wait = min(2*wait, longWait) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", what, err)
		if ctx.Err() != nil || errors.As(err, new(permanentError)) {
			return err
		}
		c.Log.Warn(what+"; will try again", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

func (c *Cluster) fetchOnce(ctx context.Context) error {
	m := &c.Config.Storage.Members
	text := m.Token
	if m.TokenFile != "" {
		content, err := os.ReadFile(m.TokenFile)
		if err != nil {
			return permanentError{config.Errorf("{Storage.Members.TokenFile}: cannot read %s: %w", m.TokenFile, datadir.Cause(err))}
		}
		text = string(content)
	}
	token, err := parseToken(text)
	if err != nil {
		return permanentError{config.Errorf("{Storage.Members.Token}: %w", err)}
	}
	target := strings.TrimRight(m.Join, "/")
	pool, err := pinned(ctx, target, token.pin)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	var answer joinAnswer
	request := joinRequest{c.Name(), version.Kubernetes, compared(c.Flags)}
	if err := call(ctx, client, http.MethodPost, target+JoinPath, token.String(), request, &answer); err != nil {
		return err
	}
	for _, text := range answer.Warnings {
		c.Log.Warn("the settings of this server differ from those of the cluster: " + text)
	}
	c.peers = answer.Peers
	return c.write(answer.Files)
}

// pinned returns the authorities of a server whose certificate has a hash. It asks the server for them without knowing who answers, and
// sends nothing that is secret.
func pinned(ctx context.Context, server, hash string) (*x509.CertPool, error) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // compared below
		DisableKeepAlives: true,
	}}
	var roots []byte
	if err := call(ctx, client, http.MethodGet, server+AuthorityPath, "", nil, &roots); err != nil {
		return nil, err
	}
	if got := pin(roots); got != hash {
		return nil, permanentError{fmt.Errorf("the authority of the server at %s has the hash %s, and the token says %s: it is not a server of the "+
			"cluster of the token, or somebody answers in its place", server, got, hash)}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	return pool, nil
}

// call is send with a limit of requestTime.
func call(ctx context.Context, client *http.Client, method, target, token string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return send(ctx, client, method, target, token, body, out)
}

// send sends a request and decodes the answer: JSON, or bytes if out is a *[]byte. A refusal is a permanentError.
func send(ctx context.Context, client *http.Client, method, target, token string, body, out any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(content))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set(tokenHeader, token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = fmt.Sprintf("it answers %s", resp.Status)
		}
		err := errors.New(status.Message)
		if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout {
			return permanentError{err}
		}
		return err
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = text
		return nil
	}
	return json.Unmarshal(text, out)
}

// write writes the keys of the cluster. Certificates that were made with other authorities before are removed.
func (c *Cluster) write(files map[string][]byte) error {
	dir := c.Config.Storage.DataDir
	if err := os.MkdirAll(datadir.Certificates(dir), datadir.PrivateDir); err != nil {
		return err
	}
	for name, content := range files {
		if !slices.Contains(handedOver, name) {
			return permanentError{fmt.Errorf("the member sends a file %q that this server does not know; are the versions the same?", name)}
		}
		path := filepath.Join(dir, name)
		before, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if bytes.Equal(before, content) {
			continue
		}
		if err := certs.WriteFile(path, content, datadir.PrivateFile); err != nil {
			return err
		}
	}
	return nil
}

// admission is the answer of a member to a server that wants to be one.
type admission struct {
	ID      uint64
	Members map[string]string // URLs of the members by name, with the new one
}

// join adds this server to the cluster as a learner, starts it, and waits until a member has given it a vote. After a failure it begins
// again, with nothing.
func (c *Cluster) join(ctx context.Context, o member.Options) (m *member.Member, err error) {
	err = c.untilDone(ctx, "cannot join the cluster", func(ctx context.Context) error {
		m, err = c.joinOnce(ctx, o)
		return err
	})
	return m, err
}

func (c *Cluster) joinOnce(ctx context.Context, o member.Options) (m *member.Member, err error) {
	var answer admission
	if err := c.askAny(ctx, admitPath, admitRequest{Name: o.Name, PeerURL: o.PeerURL}, &answer); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.unfinished(), nil, datadir.PrivateFile); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			err = os.Remove(c.unfinished())
		}
		if err != nil {
			if m != nil {
				err = errors.Join(err, m.Close())
			}
			m, err = nil, errors.Join(err, c.removeUnfinished())
		}
	}()
	c.Log.Info("the server joins the cluster", "name", o.Name, "members", answer.Members)
	o.Cluster, o.Joins = answer.Members, true
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	promoted := make(chan error, 1)
	go func() {
		err := c.awaitVote(starting, answer.ID)
		if err != nil {
			cancel(err)
		}
		promoted <- err
	}()
	if m, err = member.Start(starting, o); err != nil {
		cancel(err)
		return nil, errors.Join(err, <-promoted)
	}
	if err = <-promoted; err != nil {
		return m, err
	}
	c.Log.Info("the server is a member of the cluster", "name", o.Name)
	return m, nil
}

// awaitVote asks members again and again whether this server has a vote. They give it one when it has what they have, and give up a
// server that does not ask.
func (c *Cluster) awaitVote(ctx context.Context, id uint64) error {
	for {
		var answer struct{ Voter bool }
		err := c.askAny(ctx, votePath, voteRequest{ID: id}, &answer)
		switch {
		case err == nil && answer.Voter:
			return nil
		case errors.As(err, new(permanentError)) || ctx.Err() != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(joinPause):
		}
	}
}

// askAny asks one member after the other until one answers.
func (c *Cluster) askAny(ctx context.Context, path string, body, out any) error {
	var errs []error
	for _, peer := range c.peers {
		err := call(ctx, c.client, http.MethodPost, peer+path, "", body, out)
		if err == nil || errors.As(err, new(permanentError)) {
			return err
		}
		errs = append(errs, fmt.Errorf("%s: %w", peer, err))
	}
	return errors.Join(errs...)
}

// newClient returns a client of other members.
func newClient(files certs.MemberFiles) (*http.Client, error) {
	roots, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // members close idle connections soon
		TLSClientConfig: &tls.Config{
			RootCAs: pool, MinVersion: tls.VersionTLS12,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
				return &pair, err
			},
		},
	}}, nil
}
