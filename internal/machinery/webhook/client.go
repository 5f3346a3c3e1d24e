package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Client calls one webhook. It is safe for concurrent use.
type Client struct{ current atomic.Pointer[settings] }

// settings are the address of a webhook and how to call it. They are immutable.
type settings struct {
	url       url.URL // without the query parameter timeout
	http      *http.Client
	transport *http.Transport
	auth      *clientAuth
	metrics   *Metrics
	pending   *pendingBodies
}

// A Call is a request to a webhook.
type Call struct {
	// Body is JSON. It must not change until Post has returned.
	Body []byte
	// Timeout limits the duration of the call, including retries, and is sent to the webhook; DefaultTimeout if zero.
	Timeout time.Duration
	// MaxResponse is the size limit of the uncompressed response in bytes; 16 MiB if zero.
	MaxResponse int64
	// MaxValues limits the number of JSON values in the response, as Values counts them; 1 Mi if zero.
	MaxValues int
	// NeedsBody makes a response without a body an error. The responses to audit events have none.
	NeedsBody bool
}

const (
	// userAgent is that of kube-apiserver.
	userAgent          = "kube-apiserver-admission"
	defaultMaxResponse = 16 << 20
	defaultMaxValues   = 1 << 20
	// maxPending is the largest number of bytes in the incomplete responses of one webhook.
	maxPending = 256 << 20
	// maxErrorBody is how many bytes of an error response are read.
	maxErrorBody = 64 << 10
	// maxRetryAfter is how often a call is repeated because of Retry-After.
	maxRetryAfter = 10
)

// Post sends the request and returns the body of the response, which the caller owns. A status code outside 200 to 206 is
// returned as an *apierrors.StatusError: the Status in the body, or one made from the code. All other errors are a
// *url.Error: the webhook could not be reached, or its response was invalid or too large. After 429 or 5xx with a
// Retry-After header the request is sent again at that time, if it is before the time-out.
func (c *Client) Post(ctx context.Context, call Call) ([]byte, error) {
	call.Timeout = cmp.Or(call.Timeout, DefaultTimeout)
	call.MaxResponse = cmp.Or(call.MaxResponse, defaultMaxResponse)
	call.MaxValues = cmp.Or(call.MaxValues, defaultMaxValues)
	ctx, cancel := context.WithTimeout(ctx, call.Timeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		answer, wait, err := c.current.Load().post(ctx, call)
		if wait < 0 || attempt == maxRetryAfter {
			return answer, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answer, err
		}
	}
}

// Use replaces the settings of c by those of other, and shares its connections. An attempt in progress is not changed; its
// retries use the new settings.
func (c *Client) Use(other *Client) {
	c.current.Swap(other.current.Load()).transport.CloseIdleConnections()
}

// URL returns the URL of calls with the given time-out.
func (c *Client) URL(timeout time.Duration) string { return c.current.Load().urlOf(timeout) }

func (s *settings) urlOf(timeout time.Duration) string {
	u := s.url
	u.RawQuery = url.Values{"timeout": {timeout.String()}}.Encode()
	return u.String()
}

// CloseIdle closes idle connections.
func (c *Client) CloseIdle() { c.current.Load().transport.CloseIdleConnections() }

// post sends the request once. wait is the duration in the Retry-After header, -1 if the call must not be repeated.
func (s *settings) post(ctx context.Context, call Call) (answer []byte, wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.urlOf(call.Timeout), bytes.NewReader(call.Body))
	if err != nil {
		return nil, -1, err
	}
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", userAgent)
	s.auth.authorize(request)
	start, code := time.Now(), 0
	defer func() { s.metrics.Called(s.url.Host, code, start, len(call.Body), len(answer)) }()
	response, err := s.http.Do(request)
	s.metrics.Observe(response, err)
	if err != nil {
		return nil, -1, err
	}
	defer response.Body.Close()
	code = response.StatusCode
	if response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent {
		return nil, retryAfter(response), statusError(response)
	}
	answer, err = s.pending.read(response.Body, call.MaxResponse)
	if err == nil && call.NeedsBody && len(answer) == 0 {
		return nil, -1, fmt.Errorf("0-length response with status code: %d and content type: %s", code, response.Header.Get("Content-Type"))
	}
	if err == nil && Values(answer) > call.MaxValues {
		answer, err = nil, fmt.Errorf("the answer has more than %d values", call.MaxValues)
	}
	if err != nil {
		return nil, -1, &url.Error{Op: "Post", URL: request.URL.String(), Err: err}
	}
	return answer, -1, nil
}

// pendingBodies limits the memory of incomplete responses of a webhook to maxPending. Without it, a webhook that sends
// large responses slowly could use much memory until its calls time out.
type pendingBodies struct{ bytes atomic.Int64 }

// read returns the content of r. It fails if r has more than most bytes, or if maxPending is exceeded.
func (p *pendingBodies) read(r io.Reader, most int64) ([]byte, error) {
	w := pendingBody{of: p}
	defer func() { p.bytes.Add(-int64(w.text.Len())) }()
	n, err := io.Copy(&w, io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("the answer has more than %d bytes", most)
	}
	return w.text.Bytes(), nil
}

// pendingBody is a response that is being read.
type pendingBody struct {
	of   *pendingBodies
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *pendingBody) Write(p []byte) (int, error) {
	if b.of.bytes.Add(int64(len(p))) > maxPending {
		b.of.bytes.Add(-int64(len(p)))
		return 0, fmt.Errorf("answers with more than %d bytes are being read from the webhook", maxPending)
	}
	return b.text.Write(p)
}

// retryAfter returns the duration in the Retry-After header of a response with code 429 or 5xx. It returns -1 if there is
// none, if it is not a number of seconds, or if it is longer than an hour.
func retryAfter(r *http.Response) time.Duration {
	if r.StatusCode != http.StatusTooManyRequests && r.StatusCode < 500 {
		return -1
	}
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || seconds < 0 || seconds > int(time.Hour/time.Second) {
		return -1
	}
	return time.Duration(seconds) * time.Second
}

// statusError returns the error for a response that is not 2xx.
func statusError(r *http.Response) error {
	var body []byte
	if r.StatusCode != http.StatusSwitchingProtocols { // there the body is the connection: reading it might never end
		var err error
		if body, err = io.ReadAll(io.LimitReader(r.Body, maxErrorBody)); err != nil {
			body = nil // the error is made from the code alone
		}
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && (status.Kind == "Status" || status.Kind == "") &&
		status.Status == metav1.StatusFailure {
		return apierrors.FromObject(&status)
	}
	message := "unknown"
	if isText(r.Header.Get("Content-Type")) {
		message = strings.TrimSpace(string(body[:min(len(body), 2048)]))
	}
	seconds := 0
	if wait := retryAfter(r); wait > 0 {
		seconds = int(wait / time.Second)
	}
	return apierrors.NewGenericServerResponse(
		r.StatusCode, http.MethodPost, schema.GroupResource{}, "", message, seconds, true,
	)
}

func isText(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasPrefix(media, "text/")
}

// IsTransient reports whether a call that failed with an error of Post may succeed if it is repeated: the connection was
// lost, or the response was 429, 500 or 504, or had a Retry-After header.
func IsTransient(err error) bool {
	if isConnectionLost(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) {
		return true
	}
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay
}
