package webhook

import (
	"bytes"
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

// settings are where a webhook is and how it is called. They are immutable.
type settings struct {
	url       url.URL // without the time-out
	http      *http.Client
	transport *http.Transport
	shown     *shown
	metrics   *Metrics
	userAgent string
	answers   *answers
}

// A Call is one question.
type Call struct {
	// Body is JSON. It must not change before the answer is there.
	Body []byte
	// Timeout is how long the call may take with all that it repeats, and is told to
	// the webhook; DefaultTimeout if zero.
	Timeout time.Duration
	// MaxAnswer is the number of bytes that an answer may have when it is unpacked; 16
	// MiB if zero.
	MaxAnswer int64
	// MaxValues is what Values may return of an answer; 1 Mi if zero.
	MaxValues int
}

const (
	defaultMaxAnswer = 16 << 20
	defaultMaxValues = 1 << 20
	// maxAnswers is how many bytes of answers of one webhook are being read at a time.
	maxAnswers = 256 << 20
	// asideMax is what is read of an answer that is an error.
	asideMax = 64 << 10
	// busyMax is how often a webhook may answer that it is to be asked later.
	busyMax = 10
)

// Post asks and returns the answer. An answer that is not of 2xx is an
// *apierrors.StatusError: the Status that the webhook sent, or what its code means.
// All that kept the question from being answered is an error that says how
// the webhook was called (a *url.Error). A webhook that names the time at
// which to ask again (Retry-After with 429 or 5xx) is asked again then.
func (c *Client) Post(ctx context.Context, call Call) ([]byte, error) {
	if call.Timeout == 0 {
		call.Timeout = DefaultTimeout
	}
	if call.MaxAnswer == 0 {
		call.MaxAnswer = defaultMaxAnswer
	}
	if call.MaxValues == 0 {
		call.MaxValues = defaultMaxValues
	}
	ctx, cancel := context.WithTimeout(ctx, call.Timeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		answer, wait, err := c.current.Load().post(ctx, call)
		if wait < 0 || attempt == busyMax {
			return answer, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return answer, err
		}
	}
}

// Use has all calls that begin from now on go to the webhook of another client, in its way, over its connections. Calls in
// progress end as they began; if they are repeated, they go to the other webhook too.
func (c *Client) Use(other *Client) {
	c.current.Swap(other.current.Load()).transport.CloseIdleConnections()
}

// URL returns where calls with a time-out go.
func (c *Client) URL(timeout time.Duration) string { return c.current.Load().urlOf(timeout) }

func (c *settings) urlOf(timeout time.Duration) string {
	u := c.url
	u.RawQuery = url.Values{"timeout": {timeout.String()}}.Encode()
	return u.String()
}

// CloseIdle closes the connections that nobody uses.
func (c *Client) CloseIdle() { c.current.Load().transport.CloseIdleConnections() }

// post asks once. wait is how long the webhook wants not to be asked again, -1 if it
// does not say so.
func (c *settings) post(ctx context.Context, call Call) (answer []byte, wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.urlOf(call.Timeout), bytes.NewReader(call.Body))
	if err != nil {
		return nil, -1, err
	}
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", c.userAgent)
	c.shown.authorize(request)
	start, code := time.Now(), 0
	defer func() { c.metrics.Called(c.url.Host, code, start, len(call.Body), len(answer)) }()
	response, err := c.http.Do(request)
	c.metrics.Observe(response, err)
	if err != nil {
		return nil, -1, err
	}
	defer response.Body.Close()
	code = response.StatusCode
	if response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent {
		return nil, retryAfter(response), statusError(response)
	}
	answer, err = c.answers.read(response.Body, call.MaxAnswer)
	if err == nil && Values(answer) > call.MaxValues {
		answer, err = nil, fmt.Errorf("the answer has more than %d values", call.MaxValues)
	}
	if err != nil {
		return nil, -1, &url.Error{Op: "Post", URL: request.URL.String(), Err: err}
	}
	return answer, -1, nil
}

// answers bounds the memory for the answers of a webhook that are not complete. A webhook that sends long answers slowly
// would hold most of it for as long as its calls last.
type answers struct{ bytes atomic.Int64 }

// read reads an answer of at most a number of bytes.
func (a *answers) read(r io.Reader, most int64) ([]byte, error) {
	w := answer{of: a}
	defer func() { a.bytes.Add(-int64(w.text.Len())) }()
	n, err := io.Copy(&w, io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("the answer has more than %d bytes", most)
	}
	return w.text.Bytes(), nil
}

// answer is an answer that is being read.
type answer struct {
	of   *answers
	text bytes.Buffer
}

// Write implements io.Writer.
func (w *answer) Write(p []byte) (int, error) {
	if w.of.bytes.Add(int64(len(p))) > maxAnswers {
		w.of.bytes.Add(-int64(len(p)))
		return 0, fmt.Errorf("answers with more than %d bytes are being read from the webhook", maxAnswers)
	}
	return w.text.Write(p)
}

// retryAfter returns what the header of that name says if it is to be heard, or -1.
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

// statusError is what an answer that is no 2xx means.
func statusError(r *http.Response) error {
	var body []byte
	if r.StatusCode != http.StatusSwitchingProtocols { // there the body is the connection, which has no deadline and no end
		var err error
		if body, err = io.ReadAll(io.LimitReader(r.Body, asideMax)); err != nil {
			body = nil // the code alone says enough
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

// IsTransient reports whether an error of Post may be gone when the webhook is asked
// again: connections that were lost, and answers 429, 500 and 504 or with Retry-After.
func IsTransient(err error) bool {
	if isConnectionLost(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) {
		return true
	}
	_, says := apierrors.SuggestsClientDelay(err)
	return says
}
