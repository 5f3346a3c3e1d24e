package contract

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Client sends the requests of scenarios.
type Client struct {
	server, token string
	http          *http.Client
}

// NewClient returns a client of the server at a URL. It uses HTTP/1.1, follows no redirects and sends no User-Agent of
// its own, as when the requests were recorded.
func NewClient(server, token string) *Client {
	const requestTimeout = 90 * time.Second
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server belongs to the test
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression:  true,
		MaxIdleConnsPerHost: parallel,
	}
	return &Client{server: server, token: token, http: &http.Client{
		Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// reply is a response that was not normalized yet.
type reply struct {
	status int
	header http.Header
	doc    any
}

func (c *Client) call(
	ctx context.Context, method, path string, header map[string]any, body []byte,
) (int, http.Header, []byte, error) {
	target, err := url.ParseRequestURI(path)
	if err != nil {
		return 0, nil, nil, err
	}
	base, err := url.Parse(c.server)
	if err != nil {
		return 0, nil, nil, err
	}
	target.Scheme, target.Host = base.Scheme, base.Host
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://host/", reader)
	if err != nil {
		return 0, nil, nil, err
	}
	req.URL, req.Host = target, target.Host
	req.Header = http.Header{"Authorization": {"Bearer " + c.token}, "Accept": {"application/json"}, "User-Agent": {""}}
	setHeaders(req.Header, header)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, data, err
}

// setHeaders replaces headers. If a name occurs twice, in different cases, both values are sent, that of the
// upper-case name first.
func setHeaders(h http.Header, header map[string]any) {
	replaced := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		canonical := http.CanonicalHeaderKey(name)
		if !replaced[canonical] {
			h.Del(name)
		}
		replaced[canonical] = true
		switch v := header[name].(type) {
		case nil:
		case []any:
			for _, e := range v {
				h.Add(name, fmt.Sprint(e))
			}
		default:
			h.Add(name, fmt.Sprint(v))
		}
	}
}

// unreserved are the bytes of a path that are sent unescaped.
const unreserved = "/?&=%,:+~.-_*!'()abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func quote(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; strings.IndexByte(unreserved, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

var watchQuery = regexp.MustCompile(`[?&]watch=(1|true)`)

// do sends a step's request. If the step waits for a certain response, it sends the request again for up to 15
// seconds.
func (c *Client) do(ctx context.Context, s *Step, env environment) (reply, error) {
	const untilTimeout, untilPause = 15 * time.Second, 100 * time.Millisecond
	method, path, _ := strings.Cut(env.text(s.Do), " ")
	path = quote(path)
	header, body := s.request(env)
	watch := method == http.MethodGet && watchQuery.MatchString(path)
	if err := sleep(ctx, time.Duration(s.Wait*float64(time.Second))); err != nil {
		return reply{}, err
	}
	deadline := time.Now().Add(untilTimeout)
	for {
		status, h, data, err := c.call(ctx, method, path, header, body)
		if err != nil {
			return reply{}, err
		}
		r := reply{status, h, parse(data, h.Get("Content-Type"), watch && status == http.StatusOK)}
		if s.Until == nil || s.reached(r) || time.Now().After(deadline) {
			return r, nil
		}
		if err := sleep(ctx, untilPause); err != nil {
			return reply{}, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request returns a step's headers and body.
func (s *Step) request(env environment) (map[string]any, []byte) {
	header := map[string]any{}
	for k, v := range s.Headers {
		header[k] = env.expand(v)
	}
	if s.Accept != "" {
		header["Accept"] = s.Accept
	}
	if s.As != "" {
		header["Impersonate-User"] = env.text(s.As)
	}
	if s.Groups != nil {
		header["Impersonate-Group"] = env.expand(s.Groups)
	}
	var body []byte
	switch {
	case s.Raw != nil:
		body = []byte(env.text(*s.Raw))
	case s.Body != nil:
		body = appendJSON(nil, env.expand(s.Body))
	default:
		return header, nil
	}
	if _, ok := header["Content-Type"]; !ok {
		header["Content-Type"] = "application/json"
		if s.Type != "" {
			header["Content-Type"] = s.Type
		}
	}
	return header, body
}

// reached reports whether r is the response that the step waits for.
func (s *Step) reached(r reply) bool {
	if status, ok := s.Until["status"]; ok && fmt.Sprint(status) != strconv.Itoa(r.status) {
		return false
	}
	path, ok := s.Until["path"].(string)
	if !ok {
		return true
	}
	value := lookup(r.doc, path)
	if want, ok := s.Until["equals"]; ok {
		return len(diff("", want, value)) == 0
	}
	return value != nil
}

// parse reads a response's body: a JSON value, the events of a watch, or a text.
func parse(data []byte, contentType string, watch bool) any {
	if watch {
		events := []any{}
		for line := range bytes.Lines(data) {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			if e, err := decodeJSON(line); err == nil {
				events = append(events, e)
			} else {
				events = append(events, string(line))
			}
		}
		return events
	}
	if strings.Contains(contentType, "json") {
		if v, err := decodeJSON(data); err == nil {
			return v
		}
	}
	if strings.Contains(contentType, "protobuf") || strings.Contains(contentType, "cbor") {
		if len(data) == 0 {
			return "<0 bytes>"
		}
		return "<binary " + hex.EncodeToString(data[:min(4, len(data))]) + ">"
	}
	return strings.ToValidUTF8(string(data), "\ufffd")
}

// answer normalizes the response to a step.
func (s *Step) answer(r reply, ns string) Answer {
	a := Answer{
		Status: r.status, Type: r.header.Get("Content-Type"), Body: normalize(r.doc, ns),
		RetryAfter: r.header.Get("Retry-After"),
	}
	for _, path := range s.Ignore {
		drop(a.Body, strings.Split(path, "."))
	}
	for _, w := range slices.Sorted(slices.Values(r.header.Values("Warning"))) {
		a.Warning = append(a.Warning, normalizeString(w, ns))
	}
	return a
}

// A StepResult is the result of a step.
type StepResult struct {
	index int
	step  *Step
	code  bool // the status is right
	diffs []difference
	got   Answer
	err   error
}

// Index returns the position of the step in its scenario. It is -1 for requests before the first step.
// The module test/etcd uses it.
func (r *StepResult) Index() int { return r.index }

func (r *StepResult) passed() bool { return r.err == nil && r.code && len(r.diffs) == 0 }

// Run carries out a scenario in a namespace of its own.
func (c *Client) Run(ctx context.Context, s *Scenario) []StepResult {
	env := environment{}
	ns := ""
	if s.namespaced() {
		sum := sha1.Sum([]byte(s.Name))
		const firstNumber = 1000000 // as many digits as the recordings have
		ns = fmt.Sprintf("ct-%s-%d", hex.EncodeToString(sum[:])[:8], firstNumber+s.index)
		if err := c.prepare(ctx, ns); err != nil {
			return []StepResult{{index: -1, step: &Step{Do: "prepare"}, err: err}}
		}
		env["ns"] = ns
	}
	var out []StepResult
	for i := range s.Steps {
		st := &s.Steps[i]
		r, err := c.do(ctx, st, env)
		if err != nil {
			return append(out, StepResult{index: i, step: st, err: err})
		}
		id := st.ID
		if id == "" {
			id = fmt.Sprintf("s%d", i)
		}
		env[id] = r.doc
		if st.mode() == compareNone {
			continue
		}
		result := StepResult{index: i, step: st, got: st.answer(r, ns)}
		result.code, result.diffs = compareAny(st.mode(), st.expected(), result.got)
		out = append(out, result)
	}
	if ns != "" {
		_, _, _, _ = c.call(ctx, http.MethodDelete, "/api/v1/namespaces/"+ns, nil, nil)
	}
	return out
}

// prepare creates a namespace, and in it the ServiceAccount that a controller would create.
func (c *Client) prepare(ctx context.Context, ns string) error {
	json := map[string]any{"Content-Type": "application/json"}
	for _, o := range []struct{ path, body string }{
		{"/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + ns + `"}}`},
		{
			"/api/v1/namespaces/" + ns + "/serviceaccounts",
			`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`,
		},
	} {
		status, _, data, err := c.call(ctx, http.MethodPost, o.path, json, []byte(o.body))
		if err != nil {
			return err
		}
		if status != http.StatusCreated && status != http.StatusConflict {
			return fmt.Errorf("POST %s: %d %s", o.path, status, data)
		}
	}
	return nil
}
