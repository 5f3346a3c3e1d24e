package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// backendAttacks are attacks by what the server connects to for a request: conversion webhooks and kubelets.
func backendAttacks() []row {
	return []row{
		{
			name: "conversion webhook with hostile answers", row: "38", fresh: true, run: hostileConversions,
			// The answers have hundreds of MB, of which at most 16 MiB are read.
			limits: limits{cpu: 10 * time.Second, peak: 192 << 20},
		},
		{
			name: "kubelet with hostile answers", slow: true, row: "38", fresh: true, run: hostileKubelet,
			limits: limits{cpu: 10 * time.Second, peak: 96 << 20},
		},
	}
}

// converterAnswer is what a conversion webhook does with a request, and the status that a get through it has then; 0 if it has none.
type converterAnswer struct {
	name   string
	serve  func(w http.ResponseWriter, r *http.Request, review *conversionReview)
	status int
}

// conversionReview is a request for a conversion, and the answer to it.
type conversionReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    struct {
		UID               string           `json:"uid"`
		DesiredAPIVersion string           `json:"desiredAPIVersion"`
		Objects           []map[string]any `json:"objects"`
	} `json:"request"`
}

// answer returns the right answer. Its arguments change the converted objects and the response.
func (c *conversionReview) answer(object func(map[string]any), response func(map[string]any)) []byte {
	for _, o := range c.Request.Objects {
		o["apiVersion"] = c.Request.DesiredAPIVersion
		if object != nil {
			object(o)
		}
	}
	out := map[string]any{"uid": c.Request.UID, "convertedObjects": c.Request.Objects, "result": map[string]any{"status": "Success"}}
	if response != nil {
		response(out)
	}
	return encode(map[string]any{"apiVersion": c.APIVersion, "kind": c.Kind, "response": out})
}

func changed(object func(map[string]any), response func(map[string]any)) func(http.ResponseWriter, *http.Request, *conversionReview) {
	return func(w http.ResponseWriter, _ *http.Request, review *conversionReview) {
		_, _ = w.Write(review.answer(object, response))
	}
}

func inMetadata(name string, value any) func(http.ResponseWriter, *http.Request, *conversionReview) {
	return changed(func(o map[string]any) { o["metadata"].(map[string]any)[name] = value }, nil)
}

// megabytes writes n MiB of spaces, until the reader has gone.
func megabytes(w io.Writer, n int) {
	spaces := bytes.Repeat([]byte(" "), 1<<20)
	for range n {
		if _, err := w.Write(spaces); err != nil {
			return
		}
	}
}

func converterAnswers(trap string, ended <-chan struct{}) []converterAnswer {
	const failed = http.StatusInternalServerError
	nested := strings.Repeat(`{"a":`, 200_000) + "1" + strings.Repeat("}", 200_000)
	return []converterAnswer{
		{"no objects", changed(nil, func(r map[string]any) { r["convertedObjects"] = []any{} }), failed},
		{"objects twice", changed(nil, func(r map[string]any) {
			list := r["convertedObjects"].([]map[string]any)
			r["convertedObjects"] = append(list, list...)
		}), failed},
		{"another uid", changed(nil, func(r map[string]any) { r["uid"] = "another" }), failed},
		{"no response", func(w http.ResponseWriter, _ *http.Request, _ *conversionReview) { _, _ = io.WriteString(w, `{}`) }, failed},
		{"another kind", changed(func(o map[string]any) { o["kind"] = "Secret" }, nil), failed},
		{"another version", changed(func(o map[string]any) { o["apiVersion"] = "v1" }, nil), failed},
		{"another name", inMetadata("name", "other"), failed},
		{"another namespace", inMetadata("namespace", "kube-system"), failed},
		{"another object", inMetadata("uid", "11111111-2222-3333-4444-555555555555"), failed},
		{"metadata that is a list", changed(func(o map[string]any) { o["metadata"] = []any{} }, nil), failed},
		{"labels that are numbers", inMetadata("labels", map[string]any{"a": 1}), failed},
		{"invalid labels", inMetadata("labels", map[string]any{strings.Repeat("a", 1000): "b"}), failed},
		// What a webhook may not change is as it was; see hostileConversions.
		{"owners, finalizers and managers", changed(func(o map[string]any) {
			m := o["metadata"].(map[string]any)
			m["finalizers"], m["resourceVersion"], m["deletionTimestamp"] = []string{"e.io/evil"}, "99999", "2020-01-01T00:00:00Z"
			m["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "evil", "uid": "evil"}}
			m["managedFields"] = "evil"
		}, nil), http.StatusOK},
		{"deep nesting", func(w http.ResponseWriter, _ *http.Request, review *conversionReview) {
			text := string(review.answer(func(o map[string]any) { o["spec"] = "NESTED" }, nil))
			_, _ = io.WriteString(w, strings.ReplaceAll(text, `"NESTED"`, nested))
		}, failed},
		{"very many values", func(w http.ResponseWriter, _ *http.Request, review *conversionReview) {
			text := string(review.answer(func(o map[string]any) { o["spec"] = "MANY" }, nil))
			_, _ = io.WriteString(w, strings.ReplaceAll(text, `"MANY"`, "["+strings.Repeat("{},", 4<<20)+"{}]"))
		}, failed},
		{"512 MiB", func(w http.ResponseWriter, _ *http.Request, _ *conversionReview) { megabytes(w, 512) }, failed},
		{"a gzip bomb", func(w http.ResponseWriter, _ *http.Request, _ *conversionReview) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			megabytes(z, 1024)
			_ = z.Close()
		}, failed},
		{"a redirect", func(w http.ResponseWriter, r *http.Request, _ *conversionReview) {
			http.Redirect(w, r, trap, http.StatusTemporaryRedirect)
		}, failed},
		{"slow bytes", func(w http.ResponseWriter, r *http.Request, _ *conversionReview) {
			for {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-ended:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		}, 0},
		{"many headers", func(w http.ResponseWriter, _ *http.Request, review *conversionReview) {
			for i := range 10_000 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 100))
			}
			_, _ = w.Write(review.answer(nil, nil))
		}, failed},
	}
}

// hostileConversions reads objects through a conversion webhook that answers in every wrong way. The server must not believe it, must be
// bounded, and must serve the stored version and everything else.
func hostileConversions(a *attack) {
	ended := make(chan struct{})
	var trapped atomic.Int64
	trap := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	var current atomic.Pointer[converterAnswer]
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review conversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			a.Error(err)
		}
		current.Load().serve(w, r, &review)
	}))
	a.atEnd(func() {
		close(ended)
		for _, s := range []*httptest.Server{webhook, trap} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	defineConverted(a, webhook)
	path := "/apis/evil.io/%s/namespaces/" + a.namespace + "/gears"
	a.create(fmt.Sprintf(path, "v1"), map[string]any{
		"apiVersion": "evil.io/v1", "kind": "Gear", "metadata": map[string]any{"name": "g", "labels": map[string]any{"a": "b"}}, "spec": map[string]any{"teeth": 1},
	})
	for _, c := range converterAnswers(trap.URL, ended) {
		current.Store(&c)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if c.status == 0 {
			ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		}
		for _, read := range []string{path + "/g", path} {
			// A change makes what was converted before useless.
			a.admin.send(http.MethodPatch, fmt.Sprintf(path, "v1")+"/g", mergeType, fmt.Appendf(nil, `{"spec":{"for":%q}}`, c.name+read)).want(a, http.StatusOK)
			got := a.admin.sendContext(ctx, http.MethodGet, fmt.Sprintf(read, "v2"), "", nil)
			if got.status != c.status {
				a.Errorf("%s: GET %s: %d %s %v, want %d", c.name, read, got.status, shorten(string(got.body)), got.err, c.status)
			}
			if strings.Contains(string(got.body), "e.io/evil") || strings.Contains(string(got.body), `"99999"`) || len(got.body) > 1<<20 {
				a.Errorf("%s: GET %s: %s", c.name, read, shorten(string(got.body)))
			}
		}
		cancel()
		if got := a.admin.get(fmt.Sprintf(path, "v1") + "/g"); got.status != http.StatusOK {
			a.Errorf("%s: the stored version: %d %s", c.name, got.status, shorten(string(got.body)))
		}
	}
	if n := trapped.Load(); n > 0 {
		a.Errorf("the server followed %d redirects", n)
	}
	a.admin.send(http.MethodDelete, fmt.Sprintf(path, "v1")+"/g", "", nil).want(a, http.StatusOK)
}

// defineConverted creates the definition of Gears with the versions v1, which is stored, and v2, and waits until it is served.
func defineConverted(a *attack, webhook *httptest.Server) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	version := func(name string) map[string]any {
		return map[string]any{"name": name, "served": true, "storage": name == "v1", "schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"spec": map[string]any{"x-kubernetes-preserve-unknown-fields": true}},
		}}}
	}
	a.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", map[string]any{
		"metadata": map[string]any{"name": "gears.evil.io"},
		"spec": map[string]any{
			"group": "evil.io", "scope": "Namespaced", "names": map[string]any{"plural": "gears", "kind": "Gear"},
			"versions": []any{version("v1"), version("v2")},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"conversionReviewVersions": []string{"v1"},
				"clientConfig":             map[string]any{"url": webhook.URL, "caBundle": base64.StdEncoding.EncodeToString(ca)},
			}},
		},
	})
	wait.NoError(a, "the definition to be served", func() error {
		if got := a.admin.get("/apis/evil.io/v1/gears"); got.status != http.StatusOK {
			return fmt.Errorf("%d", got.status)
		}
		return nil
	})
}

// kubeletAnswers are what a kubelet writes to a connection after the headers of a request, by name.
func kubeletAnswers(trap string, ended <-chan struct{}) map[string]func(net.Conn) {
	write := func(text string) func(net.Conn) { return func(c net.Conn) { _, _ = io.WriteString(c, text) } }
	endless := func(begin, more string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, begin)
			for _, err := io.WriteString(c, more); err == nil; _, err = io.WriteString(c, more) {
			}
		}
	}
	line := "X-Header: " + strings.Repeat("x", 1000) + "\r\n"
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
	frame := "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff" + strings.Repeat("x", 1<<16)
	return map[string]func(net.Conn){
		"headers without end":           endless("HTTP/1.1 200 OK\r\n", line),
		"a header without end":          endless("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("x", 1<<16)),
		"interim responses without end": endless("", "HTTP/1.1 103 Early Hints\r\n"+line+"\r\n"),
		"a status line without end":     endless("HTTP/1.1 200 ", strings.Repeat("x", 1<<16)),
		"a redirect":                    write("HTTP/1.1 302 Found\r\nLocation: " + trap + "/x\r\nContent-Length: 0\r\n\r\n"),
		"a redirect with its method":    write("HTTP/1.1 307 Temporary Redirect\r\nLocation: " + trap + "/x\r\nContent-Length: 0\r\n\r\n"),
		"success without switching":     write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
		"switching without a protocol":  write("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
		"another protocol":              endless(switching+"h2c\r\n\r\n", frame),
		"websocket with huge frames":    endless(switching+"websocket\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n", frame),
		"SPDY that is none":             endless(switching+"SPDY/3.1\r\nX-Stream-Protocol-Version: v5.channel.k8s.io\r\n\r\n", "\x80\x03\x00\x01\x00\xff\xff\xff"+strings.Repeat("\x00", 1<<16)),
		"a body without end":            endless("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 1<<16)),
		"no answer":                     func(net.Conn) { <-ended },
		"half an answer":                func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-"); <-ended },
	}
}

// hostileKubelet has a kubelet answer requests for logs and connections in every wrong way, to clients that read a little and leave. Nothing
// of that may go to another host, or stay.
func hostileKubelet(a *attack) {
	ended := make(chan struct{})
	var trapped atomic.Int64
	trap := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	kubelet := httptest.NewTLSServer(nil)
	certificate := kubelet.TLS.Certificates
	kubelet.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificate, NextProtos: []string{"http/1.1"}}) //nolint:gosec // a test
	if err != nil {
		a.Fatal(err)
	}
	var current atomic.Pointer[func(net.Conn)]
	var asked atomic.Int64
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer c.Close()
				head := make([]byte, 64<<10)
				for n := 0; !bytes.Contains(head[:n], []byte("\r\n\r\n")); {
					m, err := c.Read(head[n:])
					if n += m; err != nil {
						return
					}
				}
				asked.Add(1)
				_ = c.SetWriteDeadline(time.Now().Add(patience))
				(*current.Load())(c)
			})
		}
	})
	a.atEnd(func() {
		close(ended)
		_ = listener.Close()
		open.Wait()
		trap.Close()
	})
	port := listener.Addr().(*net.TCPAddr).Port
	a.create("/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": "evil"}})
	a.admin.send(http.MethodPatch, "/api/v1/nodes/evil/status", mergeType, fmt.Appendf(nil, `{"status":{
		"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, port)).want(a, http.StatusOK)
	a.create(a.path("serviceaccounts"), map[string]any{"metadata": map[string]any{"name": "for-pods"}})
	a.create(a.path("pods"), map[string]any{
		"metadata": map[string]any{"name": "p"},
		"spec":     map[string]any{"nodeName": "evil", "serviceAccountName": "for-pods", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	})
	for name, answer := range kubeletAnswers(trap.URL, ended) {
		current.Store(&answer)
		for _, request := range []string{
			"GET " + a.path("pods/p/log") + " HTTP/1.1\r\n",
			"POST " + a.path("pods/p/exec?command=x&stdout=true") + " HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
				"X-Stream-Protocol-Version: v5.channel.k8s.io\r\nContent-Length: 0\r\n",
			"GET " + a.path("pods/p/exec?command=x&stdout=true") + " HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
			"POST " + a.path("pods/p/portforward?ports=80") + " HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
				"X-Stream-Protocol-Version: portforward.k8s.io\r\nContent-Length: 0\r\n",
		} {
			before := asked.Load()
			c := a.dial("http/1.1")
			_, _ = io.WriteString(c, request+"Host: server\r\nAuthorization: Bearer "+a.admin.token+"\r\n\r\n")
			wait.NoError(a, "the kubelet to be asked: "+name, func() error {
				if asked.Load() == before {
					return fmt.Errorf("%s", request[:40])
				}
				return nil
			})
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			got, _ := io.ReadAll(io.LimitReader(c, 4<<20))
			if begin := string(got[:min(len(got), 12)]); strings.HasPrefix(begin, "HTTP/1.1 3") {
				a.Errorf("%s: the client got %s", name, shorten(string(got)))
			}
			_ = c.Close()
		}
	}
	if n := trapped.Load(); n > 0 {
		a.Errorf("the server followed %d redirects", n)
	}
}
