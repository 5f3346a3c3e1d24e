// Package apitest has the tools that tests use with a server: a client, webhooks, and an extension API server.
// Tests in package server use it, because they cannot import servertest, which starts servers.
package apitest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// Answer is a response.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Message returns the message if the body is a Status, else "".
func (a Answer) Message() string {
	var s struct{ Message string }
	_ = json.Unmarshal([]byte(a.Body), &s)
	return s.Message
}

// AggregatedDiscovery is the media type of the document at /apis that has all resources.
const AggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Send sends a request. headers has names and values in turn. Without a Content-Type among them, the body is JSON,
// or a merge patch for PATCH.
func Send(t testing.TB, c *http.Client, method, url, body string, headers ...string) Answer {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	if body != "" && r.Header["Content-Type"] == nil {
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	w, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{w.StatusCode, w.Header, string(text)}
}

// Client sends the requests of one user to a server.
type Client struct {
	t       testing.TB
	http    *http.Client
	base    string
	headers []string
}

// NewClient returns a client of the server at a URL. headers are added to each request.
func NewClient(t testing.TB, c *http.Client, url string, headers ...string) *Client {
	return &Client{t, c, url, headers}
}

// HTTP returns the client that the requests are sent with.
func (c *Client) HTTP() *http.Client { return c.http }

// As returns a client that impersonates a user.
func (c *Client) As(user string, groups ...string) *Client {
	headers := []string{"Impersonate-User", user}
	for _, g := range groups {
		headers = append(headers, "Impersonate-Group", g)
	}
	return &Client{c.t, c.http, c.base, headers}
}

// Send sends a request, like the function Send.
func (c *Client) Send(method, path, body string, headers ...string) Answer {
	c.t.Helper()
	return Send(c.t, c.http, method, c.base+path, body, append(headers, c.headers...)...)
}

// Do sends a request and expects a status below 300. It returns the body of the response.
func (c *Client) Do(method, path, body string, headers ...string) string {
	c.t.Helper()
	a := c.Send(method, path, body, headers...)
	if a.Status >= 300 {
		c.t.Fatalf("%s %s: %d %s", method, path, a.Status, a.Body)
	}
	return a.Body
}

// Get returns the body of the response to a GET.
func (c *Client) Get(path string) string { c.t.Helper(); return c.Do(http.MethodGet, path, "") }

// Create creates an object and returns it.
func (c *Client) Create(path, body string) string {
	c.t.Helper()
	return c.Do(http.MethodPost, path, body)
}

// Patch applies a merge patch, and returns the object.
func (c *Client) Patch(path, body string) string {
	c.t.Helper()
	return c.Do(http.MethodPatch, path, body)
}

// Metadata returns the metadata of an object.
func (c *Client) Metadata(path string) metav1.ObjectMeta {
	c.t.Helper()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(c.Get(path)), &object); err != nil {
		c.t.Fatal(err)
	}
	return object.ObjectMeta
}

// Gone waits until a path is answered 404.
func (c *Client) Gone(path string) { c.t.Helper(); c.AwaitStatus(http.StatusNotFound, path) }

// Served waits until a path is answered 200.
func (c *Client) Served(path string) { c.t.Helper(); c.AwaitStatus(http.StatusOK, path) }

// AwaitStatus waits until the response for a path has the given status.
func (c *Client) AwaitStatus(status int, path string) {
	c.t.Helper()
	wait.Seen(c.t, http.StatusText(status)+" of "+path, func() (bool, string) {
		a := c.Send(http.MethodGet, path, "")
		return a.Status == status, a.Body
	})
}

// Step is a request, the expected status of its response, and an expected part of the body. It is an alias of an
// unnamed type, so that a table of steps needs no names of fields.
type Step = struct {
	Method, Path, Body string
	Status             int
	Want               string
}

// Run sends the requests one after the other and checks the responses.
func (c *Client) Run(steps []Step) {
	c.t.Helper()
	for _, s := range steps {
		a := c.Send(s.Method, s.Path, s.Body)
		if a.Status != s.Status || !strings.Contains(a.Body, s.Want) {
			c.t.Errorf("%s %s %s: %d %s\nwant %d %s", s.Method, s.Path, s.Body, a.Status, a.Body, s.Status, s.Want)
		}
	}
}

// WidgetDefinition defines the custom resource widgets of the group example.com.
const WidgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// DefineWidgets creates the resource widgets and waits until it is served.
func (c *Client) DefineWidgets() {
	c.t.Helper()
	c.Create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WidgetDefinition)
	c.Served("/apis/example.com/v1/widgets")
}

// Log keeps all text that is written to it. Several goroutines may use it.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// HostPod is a pod that the level baseline of the Pod Security Standards refuses.
const HostPod = `{"metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`

// AwaitAccess waits until the user may use a verb on a resource, because a new grant takes effect a little later.
func (c *Client) AwaitAccess(verb, resource string) {
	c.t.Helper()
	wait.Until(c.t, "permission to "+verb+" "+resource, func() bool {
		review := c.Create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"spec":{"resourceAttributes":{"verb":"`+verb+`","resource":"`+resource+`"}}}`)
		return strings.Contains(review, `"allowed":true`)
	})
}
