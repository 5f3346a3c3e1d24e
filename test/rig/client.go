package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/test/history"
)

// labelName is the label that selectors use; the value of an object is under dataName.
const (
	labelName = "color"
	dataName  = "v"
)

// Client reads and writes ConfigMaps and records the responses.
type Client struct {
	ID   int
	HTTP *http.Client
	// Base returns the current URL of the server.
	Base  func() string
	Token string
	Rec   *history.Recorder
}

// object is the part of a ConfigMap that the tests use.
type object struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   struct {
		Namespace       string            `json:"namespace,omitempty"`
		Name            string            `json:"name,omitempty"`
		ResourceVersion string            `json:"resourceVersion,omitempty"`
		Labels          map[string]string `json:"labels,omitempty"`
		Annotations     map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Data map[string]string `json:"data,omitempty"`
}

func newObject(key, value, label string, revision int64) *object {
	o := &object{APIVersion: "v1", Kind: "ConfigMap", Data: map[string]string{dataName: value}}
	o.Metadata.Namespace, o.Metadata.Name, _ = strings.Cut(key, "/")
	if revision != 0 {
		o.Metadata.ResourceVersion = strconv.FormatInt(revision, 10)
	}
	if label != "" {
		o.Metadata.Labels = map[string]string{labelName: label}
	}
	return o
}

func (o *object) key() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// foreign reports whether the object was written by the server itself.
func (o *object) foreign() bool { return strings.HasPrefix(o.Metadata.Namespace, "kube-") }

func (o *object) state() history.State {
	revision, _ := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
	return history.State{Revision: revision, Value: o.Data[dataName], Label: o.Metadata.Labels[labelName]}
}

func path(key string) string {
	namespace, name, named := strings.Cut(key, "/")
	p := "/api/v1/configmaps"
	if namespace != "" {
		p = "/api/v1/namespaces/" + namespace + "/configmaps"
	}
	if named {
		p += "/" + name
	}
	return p
}

// send sends a request and returns the status, or 0 if there was no complete response. sent is false if the request
// cannot have reached the server.
func (c *Client) send(
	ctx context.Context, method, path, contentType string, body any,
) (status int, answer []byte, sent bool) {
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		reader = bytes.NewReader(b)
	}
	r, err := c.request(ctx, method, path, reader)
	if err != nil {
		return 0, nil, false
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := c.HTTP.Do(r)
	if err != nil {
		var op *net.OpError
		return 0, nil, !errors.As(err, &op) || op.Op != "dial"
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, true
	}
	return resp.StatusCode, answer, true
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.Base()+path, body)
	if err == nil && c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return r, err
}

// do sends the request of an Op and records the Op with its response.
func (c *Client) do(ctx context.Context, op history.Op, method, path, contentType string, body any) history.Op {
	op.Client, op.Call = c.ID, c.Rec.Now()
	status, answer, sent := c.send(ctx, method, path, contentType, body)
	op.Return, op.Status = c.Rec.Now(), status
	switch {
	case !sent, status == http.StatusTooManyRequests, status == http.StatusInsufficientStorage:
		op.Outcome = history.Refused
	case status == http.StatusOK, status == http.StatusCreated:
		op.Outcome = history.Done
		if err := take(&op, answer); err != nil {
			op.Outcome = history.Unknown
		}
	case status == http.StatusNotFound:
		op.Outcome = history.Missing
	case status == http.StatusConflict && (op.Kind == history.Create || op.If != 0):
		op.Outcome = history.Conflict
	case status == http.StatusConflict:
		op.Outcome = history.Refused // there were too many conflicts with other writes
	default:
		op.Outcome = history.Unknown
	}
	c.Rec.Add(op)
	return op
}

// take sets the fields of an Op from the body of a successful response.
func take(op *history.Op, answer []byte) error {
	switch op.Kind {
	case history.Delete:
		return nil
	case history.List:
		var list struct {
			Metadata struct{ ResourceVersion string }
			Items    []object
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			return err
		}
		op.Items = map[string]history.State{}
		for _, o := range list.Items {
			if !o.foreign() {
				op.Items[o.key()] = o.state()
			}
		}
		var err error
		op.Revision, err = strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
		return err
	}
	var o object
	if err := json.Unmarshal(answer, &o); err != nil {
		return err
	}
	if op.Kind == history.Get {
		op.Read = o.state()
	} else {
		op.Revision = o.state().Revision
	}
	return nil
}

const plainJSON = "application/json"

// Create creates an object.
func (c *Client) Create(ctx context.Context, key, value, label string) history.Op {
	namespace, _, _ := strings.Cut(key, "/")
	return c.do(ctx, history.Op{Kind: history.Create, Key: key, Value: value, Label: label},
		http.MethodPost, path(namespace), plainJSON, newObject(key, value, label, 0))
}

// Update replaces an object that has the given revision; 0 means any revision.
func (c *Client) Update(ctx context.Context, key, value, label string, revision int64) history.Op {
	op := history.Op{Kind: history.Update, Key: key, Value: value, Label: label, If: revision}
	if revision == 0 {
		op.Kind = history.Replace
	}
	return c.do(ctx, op, http.MethodPut, path(key), plainJSON, newObject(key, value, label, revision))
}

// Patch changes an object of any revision by a merge patch.
func (c *Client) Patch(ctx context.Context, key, value, label string) history.Op {
	patch := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{labelName: label}},
		"data":     map[string]any{dataName: value},
	}
	return c.do(ctx, history.Op{Kind: history.Replace, Key: key, Value: value, Label: label},
		http.MethodPatch, path(key), "application/merge-patch+json", patch)
}

// Delete deletes an object that has the given revision; 0 means any revision.
func (c *Client) Delete(ctx context.Context, key string, revision int64) history.Op {
	var body any
	if revision != 0 {
		body = map[string]any{
			"kind": "DeleteOptions", "apiVersion": "v1",
			"preconditions": map[string]string{"resourceVersion": strconv.FormatInt(revision, 10)},
		}
	}
	return c.do(
		ctx, history.Op{Kind: history.Delete, Key: key, If: revision}, http.MethodDelete, path(key), plainJSON, body,
	)
}

// Get reads the latest version of an object.
func (c *Client) Get(ctx context.Context, key string) history.Op {
	return c.do(ctx, history.Op{Kind: history.Get, Key: key}, http.MethodGet, path(key), "", nil)
}

// List lists a namespace ("" means all namespaces): the latest state if revision is 0, otherwise exactly that
// revision.
func (c *Client) List(ctx context.Context, namespace string, revision int64) history.Op {
	p := path(namespace)
	if revision != 0 {
		p += fmt.Sprintf("?resourceVersion=%d&resourceVersionMatch=Exact", revision)
	}
	return c.do(ctx, history.Op{Kind: history.List, Key: namespace, If: revision}, http.MethodGet, p, "", nil)
}

// CreateNamespace creates a namespace unless it exists.
func (c *Client) CreateNamespace(ctx context.Context, name string) error {
	o := &object{APIVersion: "v1", Kind: "Namespace"}
	o.Metadata.Name = name
	status, answer, _ := c.send(ctx, http.MethodPost, "/api/v1/namespaces", plainJSON, o)
	if status != http.StatusCreated && status != http.StatusConflict {
		return fmt.Errorf("creating namespace %s: %d %s", name, status, answer)
	}
	return nil
}

// WatchError is an ERROR event that has ended a watch.
type WatchError struct {
	Code    int
	Message string
}

func (e *WatchError) Error() string { return fmt.Sprintf("watch: %d: %s", e.Code, e.Message) }

// WatchOptions are the parameters of a watch.
type WatchOptions struct {
	Selector history.Selector
	// From is the revision after which the watch begins; 0 means that the server sends the current state first.
	From int64
	// Seconds is the timeoutSeconds parameter; 0 leaves the duration to the server.
	Seconds int
	// OnStart is called with the initial state and its revision, OnEvent with each event. A return value of false ends
	// the watch.
	OnStart func(revision int64, state map[string]history.State) bool
	OnEvent func(history.Event) bool
}

func (o *WatchOptions) url() string {
	q := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}}
	if o.From == 0 {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		q.Set("resourceVersion", strconv.FormatInt(o.From, 10))
	}
	if o.Seconds != 0 {
		q.Set("timeoutSeconds", strconv.Itoa(o.Seconds))
	}
	if o.Selector.Label != "" {
		q.Set("labelSelector", labelName+"="+o.Selector.Label)
	}
	if o.Selector.Name != "" {
		q.Set("fieldSelector", "metadata.name="+o.Selector.Name)
	}
	return path(o.Selector.Namespace) + "?" + q.Encode()
}

// Watch watches until the server, one of the functions, or ctx ends it. It returns nil in these cases, a *WatchError
// for an ERROR event, or the error of the connection.
func (c *Client) Watch(ctx context.Context, o WatchOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := c.request(ctx, http.MethodGet, o.url(), nil)
	if err != nil {
		return err
	}
	resp, err := c.HTTP.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return &WatchError{resp.StatusCode, string(b)}
	}
	decode := json.NewDecoder(resp.Body)
	var state map[string]history.State // collects the initial events
	if o.From == 0 {
		state = map[string]history.State{}
	}
	for {
		var line struct {
			Type   string
			Object json.RawMessage
		}
		if err := decode.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if line.Type == "ERROR" {
			var status struct {
				Code    int
				Message string
			}
			_ = json.Unmarshal(line.Object, &status)
			return &WatchError{status.Code, status.Message}
		}
		var obj object
		if err := json.Unmarshal(line.Object, &obj); err != nil {
			return err
		}
		if obj.foreign() {
			continue
		}
		e := history.Event{Type: history.EventType(line.Type), Key: obj.key(), State: obj.state()}
		more := true
		switch {
		case state != nil && e.Type == history.Bookmark && obj.Metadata.Annotations["k8s.io/initial-events-end"] == "true":
			more = o.OnStart(e.State.Revision, state)
			state = nil
		case state != nil:
			state[e.Key] = e.State
		case e.Type == history.Bookmark:
			more = o.OnEvent(history.Event{Type: history.Bookmark, State: history.State{Revision: e.State.Revision}})
		default:
			more = o.OnEvent(e)
		}
		if !more {
			return nil
		}
	}
}
