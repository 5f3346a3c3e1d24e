package kubectlhistory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/keelson-dev/keelson/internal/api/history"
)

const (
	mediaJSON  = "application/json"
	mediaTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	// fieldManager is the name of the command in managedFields, and its User-Agent.
	fieldManager = "kubectl-history"
	// pageSize is how many objects or changes a request asks for.
	pageSize = 500
)

// client sends requests to a server.
type client struct {
	base   string // the URL without a slash at its end
	header http.Header
	http   *http.Client
	// warn is given each different warning of the server once. It may be nil.
	warn   func(text string)
	warned map[string]bool
}

const (
	// retries is how often a request is repeated after the response 429, which means that the server is too busy.
	retries = 10
	// longestWait is the longest Retry-After that the command obeys. With a longer one it does not repeat the
	// request.
	longestWait = 30 * time.Second
)

// request sends a request and returns the body of the response. A status above 299 is a *kerrors.StatusError.
// After 429 with a Retry-After, it waits and repeats the request: the server has not begun to execute it.
func (c *client) request(ctx context.Context, method, path string, query url.Values, accept string, body []byte) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		answer, after, err := c.requestOnce(ctx, method, path, query, accept, body)
		if after <= 0 || after > longestWait || attempt == retries {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(after):
		}
	}
}

// requestOnce sends a request. after is the time that the server asks to wait before a repetition, 0 if it does
// not ask.
func (c *client) requestOnce(
	ctx context.Context, method, path string, query url.Values, accept string, body []byte,
) (answer []byte, after time.Duration, err error) {
	r, err := c.send(ctx, method, path, query, accept, body)
	if err != nil {
		return nil, 0, err
	}
	defer r.Body.Close()
	answer, err = io.ReadAll(r.Body)
	if err != nil {
		return nil, 0, fmt.Errorf("the answer of the server is incomplete: %w", err)
	}
	if r.StatusCode < http.StatusMultipleChoices {
		return answer, 0, nil
	}
	if r.StatusCode == http.StatusTooManyRequests {
		if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && seconds >= 0 && seconds <= math.MaxInt32 {
			after = max(time.Duration(seconds)*time.Second, time.Millisecond)
		}
	}
	return nil, after, c.refusal(r, answer)
}

// send sends a request and returns the response, whose body the caller reads and closes.
func (c *client) send(
	ctx context.Context, method, path string, query url.Values, accept string, body []byte,
) (*http.Response, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	q, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header = c.header.Clone()
	q.Header.Set("Accept", accept)
	q.Header.Set("User-Agent", fieldManager)
	if body != nil {
		q.Header.Set("Content-Type", mediaJSON)
	}
	r, err := c.http.Do(q)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the server: %w", err)
	}
	c.warnings(r.Header)
	return r, nil
}

// refusal returns the error of a response above 299 with its body.
func (c *client) refusal(r *http.Response, body []byte) *kerrors.StatusError {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = fmt.Sprintf("the server at %s answers %s: %s", c.base, r.Status, strings.TrimSpace(string(body)))
	}
	status.Code = int32(r.StatusCode)
	return &kerrors.StatusError{ErrStatus: status}
}

// warnings calls warn with each new warning of a response.
func (c *client) warnings(header http.Header) {
	if c.warn == nil {
		return
	}
	found, _ := utilnet.ParseWarningHeaders(header.Values("Warning")) // it returns the valid ones beside errors
	for _, w := range found {
		if w.Code != 299 || w.Text == "" || c.warned[w.Text] {
			continue
		}
		if c.warned == nil {
			c.warned = map[string]bool{}
		}
		c.warned[w.Text] = true
		c.warn(w.Text)
	}
}

// asOfQuery returns the parameters of a read at a time; "" is now.
func asOfQuery(asOf string) url.Values {
	query := url.Values{}
	if asOf != "" {
		query.Set("asOf", asOf)
	}
	return query
}

// get returns an object as of a time; "" is now.
func (c *client) get(ctx context.Context, r resource, namespace, name, asOf string) (*unstructured.Unstructured, error) {
	body, err := c.request(ctx, http.MethodGet, r.path(namespace, name), asOfQuery(asOf), mediaJSON, nil)
	if err != nil {
		return nil, err
	}
	return decode(body)
}

// getOrNil works as get, but returns nil for an object that does not exist.
func (c *client) getOrNil(ctx context.Context, r resource, namespace, name, asOf string) (*unstructured.Unstructured, error) {
	o, err := c.get(ctx, r, namespace, name, asOf)
	if kerrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// decode decodes an object. Integers do not become floating-point numbers.
func decode(body []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := kjson.Unmarshal(body, &o.Object); err != nil {
		return nil, fmt.Errorf("the server answers no object: %w", err)
	}
	return o, nil
}

// pages requests all pages of a list and calls page with the body of each.
func (c *client) pages(
	ctx context.Context, r resource, namespace, selector, asOf, accept string, page func(body []byte) error,
) error {
	query := asOfQuery(asOf)
	query.Set("limit", strconv.Itoa(pageSize))
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	for {
		body, err := c.request(ctx, http.MethodGet, r.path(namespace, ""), query, accept, nil)
		if err != nil {
			return err
		}
		if err := page(body); err != nil {
			return err
		}
		var list struct {
			Metadata metav1.ListMeta `json:"metadata"`
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		if list.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", list.Metadata.Continue)
	}
}

// list returns the objects of a resource as of a time, each with apiVersion and kind, and the resourceVersion of the list.
func (c *client) list(
	ctx context.Context, r resource, namespace, selector, asOf string,
) (objects []*unstructured.Unstructured, revision string, err error) {
	err = c.pages(ctx, r, namespace, selector, asOf, mediaJSON, func(body []byte) error {
		page, err := decode(body)
		if err != nil {
			return err
		}
		revision, _, _ = unstructured.NestedString(page.Object, "metadata", "resourceVersion")
		items, _ := page.Object["items"].([]any)
		for _, item := range items {
			fields, ok := item.(map[string]any)
			if !ok {
				return fmt.Errorf("the list of %s has an item that is no object", r)
			}
			o := &unstructured.Unstructured{Object: fields}
			o.SetAPIVersion(r.apiVersion())
			o.SetKind(r.Kind)
			objects = append(objects, o)
		}
		return nil
	})
	return objects, revision, err
}

// write sends an object: method POST creates it, PUT updates it. With dryRun the server does everything but storing it.
func (c *client) write(
	ctx context.Context, method string, r resource, o *unstructured.Unstructured, dryRun bool,
) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	query := url.Values{"fieldManager": {fieldManager}}
	if dryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	name := ""
	if method == http.MethodPut {
		name = o.GetName()
	}
	answer, err := c.request(ctx, method, r.path(o.GetNamespace(), name), query, mediaJSON, body)
	if err != nil {
		return nil, err
	}
	return decode(answer)
}

// changes calls visit with the changes of an object, the newest first, until visit returns false. query has
// further parameters; its limit is the size of a page.
func (c *client) changes(
	ctx context.Context, r resource, namespace, name string, query url.Values, visit func(*history.Change) (bool, error),
) error {
	for {
		body, err := c.request(ctx, http.MethodGet, r.path(namespace, name, "history"), query, mediaJSON, nil)
		if err != nil {
			return err
		}
		var page struct {
			Kind     string           `json:"kind"`
			Metadata metav1.ListMeta  `json:"metadata"`
			Items    []history.Change `json:"items"`
		}
		if err := json.Unmarshal(body, &page); err != nil || page.Kind != "ObjectHistory" {
			return fmt.Errorf("the server answers no history of %s", r.objectName(name))
		}
		for i := range page.Items {
			if more, err := visit(&page.Items[i]); err != nil || !more {
				return err
			}
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// past requests a subresource about the past of an object. An older server may lack the subresource although it
// has the history of the object. The error then says that.
func (c *client) past(ctx context.Context, r resource, namespace, name, subresource string, query url.Values, answer any) error {
	body, err := c.request(ctx, http.MethodGet, r.path(namespace, name, subresource), query, mediaJSON, nil)
	if status := (*kerrors.StatusError)(nil); kerrors.IsNotFound(err) && errors.As(err, &status) && !namesObject(status) {
		limit := url.Values{"limit": {"1"}}
		if _, other := c.request(ctx, http.MethodGet, r.path(namespace, name, "history"), limit, mediaJSON, nil); other == nil {
			return c.notServed(subresource)
		}
	}
	if err != nil {
		return err
	}
	return kjson.Unmarshal(body, answer) // integers stay integers
}

// namesObject reports whether an error is about an object, and not about a path that the server does not have.
func namesObject(err *kerrors.StatusError) bool {
	return err.ErrStatus.Details != nil && err.ErrStatus.Details.Name != ""
}

// notServed returns the error for a subresource that the server does not have.
func (c *client) notServed(name string) error {
	return fmt.Errorf("the server at %s does not serve %s; a newer Keelson does", c.base, name)
}
