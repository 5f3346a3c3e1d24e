package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// Media types of bodies.
const (
	jsonType      = "application/json"
	yamlType      = "application/yaml"
	cborType      = "application/cbor"
	protoType     = "application/vnd.kubernetes.protobuf"
	mergeType     = "application/merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	applyType     = "application/apply-patch+yaml"
)

// users is the number of users for attackers in the file of tokens.
const users = 300

const (
	adminToken     = "administrator-token"
	bystanderToken = "bystander-token"
	nodeToken      = "node-token"
)

// nodeName is the name of the node whose kubelet has nodeToken.
const nodeName = "kubelet-1"

func userName(i int) string  { return fmt.Sprintf("attacker-%d", i) }
func userToken(i int) string { return fmt.Sprintf("attacker-token-%d", i) }

// writeTokens writes the tokens of an administrator, a bystander, a kubelet and the attackers.
func writeTokens(dir string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s,administrator,1,\"system:masters\"\n%s,bystander,2\n", adminToken, bystanderToken)
	fmt.Fprintf(&b, "%s,system:node:%s,3,\"system:nodes\"\n", nodeToken, nodeName)
	for i := range users {
		fmt.Fprintf(&b, "%s,%s,%d\n", userToken(i), userName(i), 100+i)
	}
	return os.WriteFile(filepath.Join(dir, tokensFile), []byte(b.String()), 0o600)
}

// client sends requests as one user, on its own connections.
type client struct {
	t     *testing.T
	url   string
	token string // "" sends no credentials
	http  *http.Client
}

// newClient returns a client that speaks HTTP/2, and HTTP/1.1 if http1 is set.
func newClient(t *testing.T, url, token string, http1 bool) *client {
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the server is a child process
	c := &client{t: t, url: url, token: token, http: &http.Client{Timeout: 2 * patience}}
	// Redirects are returned like other responses.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if http1 {
		c.http.Transport = &http.Transport{TLSClientConfig: config, DisableCompression: true}
	} else {
		c.http.Transport = &http2.Transport{TLSClientConfig: config, DisableCompression: true}
	}
	return c
}

func (c *client) close() { c.http.CloseIdleConnections() }

// answer is the response to a request. status is 0 if the connection was cut.
type answer struct {
	request string
	status  int
	header  http.Header
	body    []byte
	err     error
}

// send sends a request and reads the whole response. headers are names and values in turn. body may be nil.
func (c *client) send(method, path, contentType string, body []byte, headers ...string) *answer {
	return c.sendContext(context.Background(), method, path, contentType, body, headers...)
}

func (c *client) sendContext(
	ctx context.Context, method, path, contentType string, body []byte, headers ...string,
) *answer {
	a := &answer{request: method + " " + shorten(path)}
	resp, err := c.open(ctx, method, path, contentType, body, headers...)
	if err != nil {
		a.err = err
		return a
	}
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header
	if a.body, a.err = io.ReadAll(resp.Body); a.err != nil {
		a.status = 0
	}
	return a
}

// open sends a request and returns the response. The caller must read and close its body.
func (c *client) open(
	ctx context.Context, method, path, contentType string, body []byte, headers ...string,
) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, reader)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return c.http.Do(r)
}

// get is send with the method GET.
func (c *client) get(path string, headers ...string) *answer {
	return c.send(http.MethodGet, path, "", nil, headers...)
}

// want fails the test unless the response has one of the statuses.
func (a *answer) want(t testing.TB, statuses ...int) *answer {
	t.Helper()
	for _, s := range statuses {
		if a.status == s {
			return a
		}
	}
	if a.err != nil {
		t.Errorf("%s: %v, want %v", a.request, a.err, statuses)
	} else {
		t.Errorf("%s: %d %s, want %v", a.request, a.status, shorten(string(a.body)), statuses)
	}
	return a
}

// reason returns the reason of a Status, or "" for another response.
func (a *answer) reason() string {
	var status struct{ Reason string }
	_ = json.Unmarshal(a.body, &status) // another response has no reason
	return status.Reason
}

// shorten shortens a text for messages.
func shorten(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", s[:most], len(s))
}
