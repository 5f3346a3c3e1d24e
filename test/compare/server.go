package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// These are the names of the two servers in the output.
const (
	reference = "kube-apiserver"
	keelson   = "Keelson"
)

// A server is one of the two that are compared.
type server struct {
	name    string // reference or keelson
	url     string
	token   string
	etcd    string   // the URL of its etcd; empty if it is unknown
	program []string // the program with its subcommand; empty if it was not started here
	http    *http.Client
}

func newServer(name, serverURL, token string) *server {
	const requestTimeout = time.Minute
	return &server{name: name, url: strings.TrimSuffix(serverURL, "/"), token: token, http: &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server belongs to the comparison
			MaxIdleConnsPerHost: parallel,
		},
	}}
}

// port returns the port of the server's address, or "".
func (s *server) port() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return ""
	}
	return u.Port()
}

// A response is what a server answered.
type response struct {
	status   int
	body     []byte
	warnings []string // sorted
	headers  []string // Warning headers in their order
}

// A request is sent to both servers in the same way.
type request struct {
	method, path, contentType, accept, body string
	as                                      string // the user to impersonate, who is a member of system:masters
}

func (s *server) do(ctx context.Context, r request) (response, error) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, s.url+r.path, body)
	if err != nil {
		return response{}, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "compare")
	if r.as != "" {
		req.Header.Set("Impersonate-User", r.as)
		req.Header.Set("Impersonate-Group", "system:masters")
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	warnings := resp.Header.Values("Warning")
	return response{resp.StatusCode, data, slices.Sorted(slices.Values(warnings)), warnings}, err
}

// get returns the JSON of a path. It fails if the status is not 200.
func (s *server) get(ctx context.Context, path, accept string) (map[string]any, error) {
	r, err := s.do(ctx, request{method: http.MethodGet, path: path, accept: accept})
	if err != nil {
		return nil, err
	}
	if r.status != http.StatusOK {
		return nil, fmt.Errorf("%s: GET %s: %d %.200s", s.name, path, r.status, r.body)
	}
	out := map[string]any{}
	if err := decode(r.body, &out); err != nil {
		return nil, fmt.Errorf("%s: GET %s: %w", s.name, path, err)
	}
	return out, nil
}

// decode reads JSON. Numbers keep their digits.
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}

// parallel is the number of requests to a server at a time.
const parallel = 8

// inParallel calls f with the numbers up to n, several at a time.
func inParallel(n int, f func(i int)) {
	work := make(chan int)
	var workers sync.WaitGroup
	for range min(parallel, n) {
		workers.Go(func() {
			for i := range work {
				f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	workers.Wait()
}

// dig returns the value at names in nested objects, or nil.
func dig(v any, names ...string) any {
	for _, n := range names {
		m, _ := v.(map[string]any)
		v = m[n]
	}
	return v
}

// items returns the objects of a list.
func items(v any) []map[string]any {
	var out []map[string]any
	list, _ := v.([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// text returns a string, or "" if v is none.
func text(v any) string {
	s, _ := v.(string)
	return s
}
