package bucket

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testKey, testSecret and testSession are the credentials of the tests. The last two must never be in a message.
const testKey, testSecret, testSession = "TESTACCESSKEY", "verysecretkey", "verysecretsession"

// answer answers a request of a script.
type answer func(http.ResponseWriter, *http.Request)

// script is an S3 service that answers each request with the next answer; the last one answers all that follow. Its connections are
// pipes, so the clock of a bubble goes on while client and service wait for each other.
type script struct {
	answers     []answer
	connections chan net.Conn
	closed      chan struct{}

	mu       sync.Mutex // guards requests
	requests []string   // method, path and query
}

// withScript runs a test in a bubble with a bucket of a service that answers by a script.
func withScript(t *testing.T, answers []answer, run func(t *testing.T, b Bucket, s *script)) {
	t.Helper()
	withOptions(t, Options{}, answers, run)
}

// withOptions is withScript with other options.
func withOptions(t *testing.T, o Options, answers []answer, run func(t *testing.T, b Bucket, s *script)) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	t.Setenv("AWS_SESSION_TOKEN", testSession)
	withSettings(t, o, answers, run)
}

// withSettings is withOptions with the credentials that are in the environment.
func withSettings(t *testing.T, o Options, answers []answer, run func(t *testing.T, b Bucket, s *script)) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: answers, connections: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
		go func() { _ = server.Serve(s) }() // it ends with ErrServerClosed
		o.Endpoint, o.Region = "http://s3.test", "test"
		b, closeBucket, err := openS3(t.Context(), "bkt", "pre/", o, s.dial)
		if err != nil {
			t.Fatal(err)
		}
		run(t, b, s)
		if err := closeBucket(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * stalled) // until stops has ended; no real time
	})
}

func (s *script) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case s.connections <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Accept, Close and Addr implement net.Listener.
func (s *script) Accept() (net.Conn, error) {
	select {
	case c := <-s.connections:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *script) Close() error { close(s.closed); return nil }

func (s *script) Addr() net.Addr { return &net.UnixAddr{Name: "script"} }

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	next := s.answers[min(len(s.requests), len(s.answers)-1)]
	s.requests = append(s.requests, strings.TrimSuffix(r.Method+" "+r.URL.RequestURI(), "?"))
	s.mu.Unlock()
	next(w, r)
}

// seen returns the requests, one a line, without what only the SDK wants to know.
func (s *script) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, r := range s.requests {
		before, _, _ := strings.Cut(r, "x-id=")
		b.WriteString(strings.TrimRight(before, "?&") + "\n")
	}
	return b.String()
}

// refuses answers with an error, whose message has all that the request has.
func refuses(status int, code string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%v %s</Message></Error>", code, r.Header, testSecret)
	}
}

// says answers with an ETag and a body.
func says(etag, body string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if etag != "" {
			w.Header().Set("Etag", etag)
		}
		_, _ = io.WriteString(w, body)
	}
}

// hangs answers nothing, until the client gives up.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// cuts reads a part of a request, and closes the connection.
func cuts(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, 1000)
	panic(http.ErrAbortHandler)
}
