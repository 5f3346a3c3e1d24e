package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

const (
	jsonType      = "application/json"
	mergeType     = "application/merge-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	applyType     = "application/apply-patch+yaml"
)

// requestLimit is the timeout of requests, except for watches.
const requestLimit = time.Minute

// client is one HTTP/2 connection.
type client struct {
	url  string
	http *http.Client
	end  func()
}

func newClient(url string) *client {
	//nolint:gosec // the server is a child process on this machine
	t := &http2.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, StrictMaxConcurrentStreams: true}
	return &client{url: url, http: &http.Client{Transport: t}, end: t.CloseIdleConnections}
}

// open sends a request. The caller must read and close the body of the response.
func (c *client) open(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, reader)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return c.http.Do(r)
}

// statusError is the error for a response that is no success.
type statusError struct {
	request string
	code    int
	body    string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: %d %s", e.request, e.code, e.body) }

// send sends a request and returns the body of the response. It returns an error if the response is no success.
func (c *client) send(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	resp, err := c.open(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, &statusError{method + " " + path, resp.StatusCode, fmt.Sprintf("%.200s", answer)}
	}
	return answer, nil
}
