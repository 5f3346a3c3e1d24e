package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// edgeAttacks are attacks on connections, authentication, authorization and metrics.
func edgeAttacks() []row {
	return []row{
		{name: "impersonation without the right to it", row: "11", run: impersonation},
		{name: "headers of a front proxy", row: "9", run: spoofedHeaders},
		{name: "label selector of 900 KB", row: "31", run: longSelectors, limits: cheap()},
		// Each request is the only one on its connection, because connections of unauthenticated clients are closed.
		{name: "paths that are all different", row: "31", run: manyPaths, limits: limits{cpu: 6 * time.Second}},
		{name: "paths of 900 KB", row: "31", run: longPaths, limits: limits{cpu: 3 * time.Second}},
		{name: "paths that are no UTF-8", row: "31", run: invalidPaths},
		// The limit is in net/http: it serves only as many requests of a connection at a time as there may be streams,
		// and closes a connection on which too many wait.
		{name: "rapid reset", row: "25", run: rapidReset, limits: limits{cpu: 5 * time.Second}},
		{name: "streams beyond the limit", row: "25", run: manyStreams},
		{name: "headers beyond the limit", row: "25", run: largeHeaders, limits: limits{peak: 128 << 20}},
		{name: "connections of strangers", row: "25", run: strangers},
		{name: "bodies that are withheld", row: "32", run: withheldBodies, limits: limits{cpu: 4 * time.Second}},
		{name: "bodies that come in part", row: "32", run: partialBodies, limits: limits{peak: 384 << 20}},
		{
			name: "requests that wait for the server", slow: true, row: "32",
			rights: []right{{resources: "configmaps", verbs: "list"}}, run: waitingReads, limits: limits{cpu: 4 * time.Second},
		},
		{
			name: "answers that are not read", row: "32",
			rights: []right{{resources: "configmaps", verbs: "list"}},
			setup:  func(a *attack) { a.create(a.path("configmaps"), configMap("big", 900<<10)) },
			// The responses are written from the bytes in the cache.
			run: unreadLists, limits: limits{peak: 64 << 20},
		},
		{
			name: "answers that are not read and are copies", slow: true, row: "32",
			rights: []right{{resources: "configmaps", verbs: "get,list"}},
			setup: func(a *attack) {
				a.create(a.path("configmaps"), configMap("big", 900<<10))
				a.grant("other", "bystander", a.namespace, []right{{resources: "configmaps", verbs: "get"}})
			},
			// One user may use seven eighths of 128 MiB; the same amount may be garbage that is not collected yet.
			run: unreadCopies, limits: limits{cpu: 20 * time.Second, peak: 600 << 20},
		},
		{
			name: "answers of writes that are not read", slow: true, row: "32", server: "patient",
			rights: []right{{resources: "configmaps", verbs: "patch"}},
			setup: func(a *attack) {
				for i := range unreadStreams {
					a.create(a.path("configmaps"), configMap(fmt.Sprint("big-", i), 500<<10))
				}
			},
			run: unreadWrites,
			// The writes use most of it. The log and the memory of the store are kept.
			limits: limits{cpu: 16 * time.Second, peak: 640 << 20, kept: 128 << 20},
		},
		{
			name: "withheld bodies do not delay a stop", row: "27", fresh: true, run: stopWithWithheldBodies,
			withoutBystander: "the server stops",
		},
		{
			name: "credentials in URLs and headers", row: "29", server: "verbose",
			rights: []right{{resources: "secrets", verbs: "create"}},
			run:    credentials,
		},
		{name: "tokens that an issuer signed and that do not hold", row: "S12", server: "issuer", run: issuerTokens},
		// Each attempt waits without a seat, and ends when its client disconnects.
		{
			name: "webhook of tokens that hangs", slow: true, row: "36", server: "webhook", run: hangingTokens,
			limits: limits{cpu: 3 * time.Second},
		},
	}
}

func impersonation(a *attack) {
	for _, headers := range [][]string{
		{"Impersonate-User", "someone"},
		{"Impersonate-User", "someone", "Impersonate-Group", "system:masters"},
		{"Impersonate-User", a.userName, "Impersonate-Group", "system:masters"},
		{"Impersonate-User", "system:serviceaccount:kube-system:default"},
		{"Impersonate-User", "someone", "Impersonate-Extra-scopes", "x"},
		{"Impersonate-User", "someone", "Impersonate-Uid", "x"},
	} {
		a.user.get("/api/v1/namespaces", headers...).want(a, http.StatusForbidden)
	}
	// A group header without a user header is refused, and does not get around the check.
	a.user.get("/api/v1/namespaces", "Impersonate-Group", "system:masters").want(
		a, http.StatusForbidden, http.StatusInternalServerError, http.StatusBadRequest,
	)
}

func spoofedHeaders(a *attack) {
	headers := []string{
		"X-Remote-User", "administrator", "X-Remote-Group", "system:masters", "X-Remote-Extra-Scopes", "x", "X-Remote-Uid",
		"1",
	}
	a.anonymous.get("/api/v1/namespaces", headers...).want(a, http.StatusForbidden)
	a.user.get("/api/v1/namespaces", headers...).want(a, http.StatusForbidden)
	who := a.user.send(http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", jsonType,
		[]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`), headers...).want(a,
		http.StatusCreated)
	if strings.Contains(string(who.body), "system:masters") || !strings.Contains(string(who.body), a.userName) {
		a.Errorf("%s", who.body)
	}
}

// longSelectors sends selectors that are almost as long as a request line may be.
func longSelectors(a *attack) {
	labels := "/api/v1/pods?labelSelector=" + strings.TrimSuffix(strings.Repeat("a!=b,", 180000), ",")
	fields := "/api/v1/pods?fieldSelector=" + strings.TrimSuffix(strings.Repeat("a!=b,", 180000), ",")
	set := "/api/v1/pods?labelSelector=a+in+(" + strings.TrimSuffix(strings.Repeat("b,", 450000), ",") + ")"
	for _, path := range []string{labels, fields, set} {
		a.anonymous.get(path).want(a, http.StatusForbidden)
		a.user.get(path).want(a, http.StatusForbidden, http.StatusBadRequest)
	}
}

// scrape returns the server's metrics.
func (a *attack) scrape() string {
	return string(a.admin.get("/metrics").want(a, http.StatusOK).body)
}

// notInMetrics fails the test if the metrics have grown by more than some lines, or contain a text that the attacker
// has sent.
func (a *attack) notInMetrics(before, text string) {
	a.Helper()
	after := a.scrape()
	const lines, size = 500, 64 << 10
	if grown := strings.Count(after, "\n") - strings.Count(before, "\n"); grown > lines || len(after)-len(before) > size {
		a.Errorf("the metrics grew by %d lines and %d bytes", grown, len(after)-len(before))
	}
	if strings.Contains(after, text) {
		a.Errorf("the metrics hold %q of a request", text)
	}
}

func manyPaths(a *attack) {
	before := a.scrape()
	var wg sync.WaitGroup
	n := size(200, 10000)
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				for _, path := range []string{
					"/apis/sneaky%d.example.com/v1//x", "/api/sneaky%d/pods", "/apis/apps/v1/sneaky%d",
					"/api/v1/namespaces/default/pods/x/sneaky%d",
					"/apis/sneaky%d.example.com/v1", "/sneaky%d", "/api/v1/watch/sneaky%d",
					"/apis/apiextensions.k8s.io/sneaky%d/customresourcedefinitions",
				} {
					if got := a.anonymous.get(fmt.Sprintf(path, i)); got.status != http.StatusForbidden &&
						got.status != http.StatusNotFound {
						a.Errorf("%s: %d %v", got.request, got.status, got.err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, method := range []string{"SNEAKYA", "SNEAKYB", "sneakyc"} {
		a.anonymous.send(method, "/api/v1/pods", "", nil)
	}
	a.notInMetrics(before, "sneaky")
	if strings.Contains(a.scrape(), "SNEAKY") {
		a.Error("the metrics hold a method that does not exist")
	}
}

func longPaths(a *attack) {
	before := a.scrape()
	long := strings.Repeat("tooLong", 900<<10/7)
	for range size(10, 80) {
		a.anonymous.get("/apis/"+long+"/v1//x").want(a, http.StatusForbidden, http.StatusNotFound)
		a.anonymous.get("/api/v1/namespaces/"+long+"/pods").want(a, http.StatusForbidden, http.StatusNotFound)
	}
	a.notInMetrics(before, "tooLong")
}

func invalidPaths(a *attack) {
	for _, path := range []string{
		"/apis/%ff%fe/v1//x", "/apis/x/%ff/y", "/api/v1/%ff%fe", "/api/v1/namespaces/%ff/pods", "/%ff", "/api/v1/pods/x/%fe",
		"/api/v1/namespaces/%00/pods",
	} {
		a.anonymous.get(path).want(a, http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest)
		a.user.get(path).want(a, http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest)
		// A list of a namespace with an invalid name is empty.
		a.admin.get(path).want(a, http.StatusNotFound, http.StatusBadRequest, http.StatusOK)
	}
	a.scrape()
}

// rapidReset (CVE-2023-44487) opens streams and resets them at once.
func rapidReset(a *attack) {
	for range 4 {
		c := a.dialHTTP2(true)
		for i := range uint32(size(5000, 100000)) { //nolint:gosec // small
			id := 2*i + 1
			if c.headers(id, true, http.MethodGet, "/api/v1/namespaces") != nil ||
				c.write(func(f *http2.Framer) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) }) != nil {
				break // the server has closed the connection
			}
		}
	}
}

// manyStreams opens more streams on one connection than the server allows, each with a body that is not sent. The
// streams above the limit are refused.
func manyStreams(a *attack) {
	c := a.dialHTTP2(true)
	const streams = 2000
	for i := range uint32(streams) {
		if c.headers(
			2*i+1, false, http.MethodPost, selfReviews, "authorization", "Bearer "+a.user.token, "content-type", jsonType,
			"content-length", "100",
		) != nil {
			break
		}
	}
	wait.NoError(a, "the server to refuse streams", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		refused := 0
		for id := range c.ended {
			if _, answered := c.status[id]; !answered {
				refused++
			}
		}
		if c.closed || c.goaway || refused > streams/2 {
			return nil
		}
		return fmt.Errorf("%d of %d were refused", refused, streams)
	})
}

func largeHeaders(a *attack) {
	conn := a.dial("http/1.1")
	go func() {
		_, _ = io.WriteString(
			conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 4000)+"\r\n",
		)
	}() // the server may close the connection before it has read everything
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil &&
		resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		a.Errorf("%d", resp.StatusCode)
	}
	// Many references to one header in the compression table.
	c := a.dialHTTP2(true)
	pairs := []string{"x-large", strings.Repeat("x", 3500)}
	for range 3000 {
		pairs = append(pairs, pairs[0], pairs[1])
	}
	for id := uint32(1); id < 40; id += 2 {
		if c.headers(id, true, http.MethodGet, "/healthz", pairs...) != nil {
			break
		}
	}
	// A block of headers without an end.
	endless := a.dialHTTP2(true)
	if err := endless.write(func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndStream: true})
	}); err != nil {
		a.Fatal(err)
	}
	block := make([]byte, 16<<10)
	for i := range block {
		block[i] = 0x82 // :method GET, repeated
	}
	for range 2000 {
		if endless.write(func(f *http2.Framer) error { return f.WriteContinuation(1, false, block) }) != nil {
			return
		}
	}
	wait.NoError(a, "the server to end a connection with endless headers", func() error {
		endless.mu.Lock()
		defer endless.mu.Unlock()
		if endless.closed || endless.goaway {
			return nil
		}
		return fmt.Errorf("it is open")
	})
}

// strangers sends requests with no or wrong credentials. Their connections are closed after the response.
func strangers(a *attack) {
	for _, header := range []string{"", "Authorization: Bearer wrong\r\n", "Authorization: Basic eDp4\r\n"} {
		for range size(50, 1000) {
			conn := a.dial("http/1.1")
			if _, err := io.WriteString(conn, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n"+header+"\r\n"); err != nil {
				a.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				a.Fatal(err)
			}
			if !resp.Close || resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnauthorized {
				a.Fatalf("%q: %d, the connection is closed: %v", header, resp.StatusCode, resp.Close)
			}
			_ = conn.Close()
		}
	}
}

const selfReview = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",` +
	`"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`

const selfReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// withheldBodies begins writes whose bodies are never sent; the writes of others must be served.
func withheldBodies(a *attack) {
	for range 6 {
		c := a.dialHTTP2(true)
		for i := range uint32(90) {
			if err := c.headers(
				2*i+1, false, http.MethodPost, selfReviews, "authorization", "Bearer "+a.user.token, "content-type", jsonType,
				"content-length", "100",
			); err != nil {
				a.Fatal(err)
			}
		}
		wait.NoError(a, "the streams to be there", func() error { return c.ping() })
	}
	other := newClient(a.T, a.server.url, bystanderToken, false)
	defer other.close()
	for range 20 {
		other.send(http.MethodPost, selfReviews, jsonType, []byte(selfReview)).want(a, http.StatusCreated)
	}
	for range 20 {
		other.send(http.MethodPost, a.path("configmaps"), jsonType, []byte("{}")).want(a, http.StatusForbidden)
	}
	// A request whose body is still being read has no seat, so other requests of the attacker are served, too.
	a.user.send(http.MethodPost, selfReviews, jsonType, []byte(selfReview)).want(a, http.StatusCreated)
}

// partialBodies sends the first 600 KB of bodies of 3 MB, for each of which the server keeps 2 MiB. The attacker must
// get only its part of the memory for bodies, and the bodies of others must be read.
func partialBodies(a *attack) {
	const bodies, enough = 90, 20 // one user may use 112 of 128 MiB
	var refused atomic.Int64
	for range bodies {
		conn := a.dial("http/1.1")
		head := "POST " + selfReviews + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.user.token +
			"\r\nContent-Type: " + jsonType +
			"\r\nContent-Length: 3000000\r\n\r\n"
		if _, err := io.WriteString(conn, head+strings.Repeat(" ", 600<<10)); err != nil {
			continue // it was answered before everything was sent
		}
		go func() {
			if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil &&
				answer.StatusCode == http.StatusTooManyRequests {
				refused.Add(1)
			}
		}()
	}
	wait.NoError(a, "bodies to be refused", func() error {
		if n := refused.Load(); n < enough {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	other := newClient(a.T, a.server.url, bystanderToken, false)
	defer other.close()
	for range 5 {
		other.send(
			http.MethodPost, selfReviews, jsonType, []byte(strings.Repeat(" ", 700<<10)+selfReview),
		).want(a, http.StatusCreated)
	}
}

// waitingReads sends more requests than there are seats and places in the queues of one user. They wait in the server,
// with a seat, for a revision that does not exist yet. One user must not get more than its part of the seats.
func waitingReads(a *attack) {
	// There are 600 seats, and a user may have 50 requests in each of 6 queues.
	const connections, streams, admitted = 12, 90, 900
	all := make([]*connection, connections)
	for i := range all {
		all[i] = a.dialHTTP2(true)
		for s := range uint32(streams) {
			if err := all[i].headers(
				2*s+1, true, http.MethodGet, a.path("configmaps?resourceVersion=1099511627776"), "authorization",
				"Bearer "+a.user.token,
			); err != nil {
				a.Fatal(err)
			}
		}
	}
	wait.NoError(a, "the seats of one user to be taken", func() error {
		refused := 0
		for _, c := range all {
			for _, status := range c.answered() {
				if status == "429" {
					refused++
				}
			}
		}
		if refused < connections*streams-admitted {
			return fmt.Errorf("%d are refused", refused)
		}
		return nil
	})
	a.othersRead()
}

// ping returns when the server has read all frames that were sent before.
func (c *connection) ping() error {
	return c.write(func(f *http2.Framer) error { return f.WritePing(false, [8]byte{1}) })
}

// unreadStreams is how many streams unread opens.
const unreadStreams = 90

// unread opens a connection whose flow-control windows are closed, sends as many requests as one connection may have,
// and waits until all are answered. It adds the numbers of responses to counts, by status. A * in path is the number of
// the stream.
func (a *attack) unread(counts map[string]int, method, path, body string, pairs ...string) {
	a.Helper()
	const streams = unreadStreams
	c := a.dialHTTP2(true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	pairs = append([]string{"authorization", "Bearer " + a.user.token}, pairs...)
	for i := range uint32(streams) {
		id := 2*i + 1
		path := strings.ReplaceAll(path, "*", fmt.Sprint(i))
		if err := c.headers(id, body == "", method, path, pairs...); err != nil {
			a.Fatal(err)
		}
		if body == "" {
			continue
		}
		if err := c.write(func(f *http2.Framer) error { return f.WriteData(id, true, []byte(body)) }); err != nil {
			a.Fatal(err)
		}
	}
	wait.NoError(a, "the answers to begin", func() error {
		if n := len(c.answered()); n < streams {
			return fmt.Errorf("%d of %d have", n, streams)
		}
		return nil
	})
	for _, status := range c.answered() {
		counts[status]++
	}
}

// unreadLists requests large lists on streams whose window is closed.
func unreadLists(a *attack) {
	counts := map[string]int{}
	for range 6 {
		a.unread(counts, http.MethodGet, a.path("configmaps"), "")
	}
	if len(counts) != 1 || counts["200"] == 0 {
		a.Errorf("the answers by status: %v", counts)
	}
	a.othersRead()
}

// unreadCopies requests responses that have to be built for each request. When the attacker's responses use too much
// memory, further requests are refused; others can still read.
func unreadCopies(a *attack) {
	counts := map[string]int{}
	table := "application/json;as=Table;v=v1;g=meta.k8s.io"
	a.unread(counts, http.MethodGet, a.path("configmaps/big"), "")
	a.unread(counts, http.MethodGet, a.path("configmaps/big"), "", "accept", protoType)
	a.unread(counts, http.MethodGet, a.path("configmaps/big?pretty=1"), "")
	a.unread(counts, http.MethodGet, a.path("configmaps?includeObject=Object"), "", "accept", table)
	a.unread(counts, http.MethodGet, a.path("configmaps"), "", "accept", yamlType)
	a.unread(counts, http.MethodGet, a.path("configmaps/big"), "", "accept-encoding", "gzip")
	if counts["200"] < 50 || counts["429"] < 200 {
		a.Errorf("the answers by status: %v", counts)
	}
	a.othersRead()
	other := newClient(a.T, a.server.url, bystanderToken, false)
	defer other.close()
	for range 5 {
		other.get(a.path("configmaps/big")).want(a, http.StatusOK)
	}
}

// unreadWrites changes large objects on streams whose window is closed. Each stream has an object of its own, so that no
// write is repeated, however busy the machine is.
func unreadWrites(a *attack) {
	counts := map[string]int{}
	for i := range 6 {
		a.unread(
			counts, http.MethodPatch, a.path("configmaps/big-*"), fmt.Sprintf(`{"data":{"n":"%d"}}`, i), "content-type", mergeType,
		)
	}
	if counts["200"] < 10 || counts["429"] < 200 {
		a.Errorf("the answers by status: %v", counts)
	}
	a.othersRead()
}

// othersRead reads as another user.
func (a *attack) othersRead() {
	a.Helper()
	other := newClient(a.T, a.server.url, bystanderToken, false)
	defer other.close()
	for range 50 {
		other.get("/api/v1/namespaces/"+a.namespace).want(a, http.StatusOK)
	}
}

// stopWithWithheldBodies checks that a stop takes less time than requests may take.
func stopWithWithheldBodies(a *attack) {
	for range 5 {
		c := a.dialHTTP2(true)
		if err := c.headers(
			1, false, http.MethodPost, selfReviews, "authorization", "Bearer "+a.user.token, "content-type", jsonType,
			"content-length", "100",
		); err != nil {
			a.Fatal(err)
		}
		if err := c.ping(); err != nil {
			a.Fatal(err)
		}
	}
	a.user.send(http.MethodPost, selfReviews, jsonType, []byte(selfReview)).want(a, http.StatusCreated)
	if stopped, err := a.server.ask(stop); err != nil || stopped.Failure != "" {
		a.Errorf("the stop failed: %s %v", stopped.Failure, err)
	}
	a.ended = true
}

// credentials sends secrets in all places that might be logged.
func credentials(a *attack) {
	const secret = "VERYSECRETVALUE"
	stranger := newClient(a.T, a.server.url, secret, false)
	defer stranger.close()
	stranger.get("/api/v1/pods").want(a, http.StatusUnauthorized)
	for _, query := range []string{"token=", "access_token=", "%74oken=", "access%5ftoken=", "x=1&tok%65n="} {
		a.user.get("/api/v1/namespaces/default?"+query+secret).want(a, http.StatusForbidden)
	}
	a.user.get("/api/v1/namespaces", "Impersonate-User", "x", "Cookie", secret).want(a, http.StatusForbidden)
	body := []byte(`{"metadata":{"name":"s"},"stringData":{"k":"` + secret + `"}}`)
	a.user.send(http.MethodPost, a.path("secrets"), jsonType, body).want(a, http.StatusCreated)
	a.user.send(http.MethodPost, a.path("secrets"), jsonType, body[:len(body)-3]).want(a, http.StatusBadRequest)
	for where, text := range map[string]string{"the log": a.server.log.String(), "the metrics": a.scrape()} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, secret) || strings.Contains(line, a.user.token) {
				a.Errorf("%s has %s", where, shorten(line))
			}
		}
	}
	if !strings.Contains(a.server.log.String(), "/api/v1/namespaces/default") {
		a.Error("the requests were not logged at all")
	}
}

// hangingTokens sends unknown tokens, for which the server asks a webhook that never answers. Users with other
// credentials must be served.
func hangingTokens(a *attack) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for i := range 100 {
		wg.Go(func() {
			c := newClient(a.T, a.server.url, fmt.Sprintf("unknown-%d", i), false)
			defer c.close()
			if got := c.sendContext(ctx, http.MethodGet, "/api/v1/namespaces", "", nil); got.status != 0 &&
				got.status != http.StatusUnauthorized {
				a.Errorf("%d", got.status)
			}
		})
	}
	for range 20 {
		a.user.send(http.MethodPost, selfReviews, jsonType, []byte(selfReview)).want(a, http.StatusCreated)
	}
	wg.Wait()
}

// TestRefusesToStart checks that a server does not start if its configuration would let clients impersonate users like
// a front proxy.
func TestRefusesToStart(t *testing.T) {
	for name, want := range map[string]string{"proxies are clients": "overlapping"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := writeAuthority(dir); err != nil {
				t.Fatal(err)
			}
			conf := config.InMemory()
			configurations()[name](dir, &conf)
			s, err := keelson.Start(t.Context(), conf)
			if err == nil {
				_ = s.Stop(context.Background())
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
		})
	}
}
