package deadline

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// serveBoth serves h over HTTP/1.1 and HTTP/2.
func serveBoth(t *testing.T, h http.Handler, use func(t *testing.T, url string, c *http.Client)) {
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = http2
		s.StartTLS()
		t.Run(map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[http2], func(t *testing.T) { use(t, s.URL, s.Client()) })
		s.Close()
	}
}

// TestHandlerRunningAfterTheDeadline checks that the client gets the complete 504 response while the handler is still
// running, and that everything which the handler writes later is discarded.
func TestHandlerRunningAfterTheDeadline(t *testing.T) {
	release, ended := make(chan bool), make(chan bool)
	var running atomic.Int64
	late := make(chan bool, 1)
	h := withOptions(Options{
		Limit: time.Millisecond, Stopping: t.Context(), Running: &running,
		Abandoned: func(panicked bool) { late <- panicked },
	}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Handler", "a header of an answer that nobody gets")
		<-release
		w.Header().Set("X-Late", "more of it")
		if _, err := w.Write([]byte("late")); !errors.Is(err, http.ErrHandlerTimeout) {
			t.Errorf("a late write: %v", err)
		}
		ended <- true
	})
	serveBoth(t, h, func(t *testing.T, url string, c *http.Client) {
		w, err := c.Post(url+"/api/v1/namespaces/default/pods", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		body, err := io.ReadAll(w.Body)
		if err != nil || w.StatusCode != http.StatusGatewayTimeout || string(body) != timedOut ||
			w.Header.Get("Content-Type") != "text/plain; charset=utf-8" || w.Header.Get("X-Handler") != "" {
			t.Errorf("%d %v %q %v", w.StatusCode, w.Header, body, err)
		}
		if n := running.Load(); n != 1 {
			t.Errorf("%d handlers go on", n)
		}
		release <- true
		<-ended
		if <-late {
			t.Error("it panicked")
		}
	})
}

// TestHalfAnAnswer checks that the client does not take a part of an answer for the whole: the connection or
// stream is reset, even if the client does not read.
func TestHalfAnAnswer(t *testing.T) {
	ended := make(chan error, 1)
	release := make(chan bool)
	h := withOptions(Options{
		Limit: 10 * time.Millisecond, Stopping: t.Context(), Running: &atomic.Int64{}, Abandoned: func(bool) {},
	}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Handler", "yes")
		_, err := io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		if r.URL.Path != "/half" {
			for err == nil { // until nobody takes more
				_, err = io.WriteString(w, strings.Repeat("x", 1<<20))
			}
		} else {
			<-release
		}
		ended <- err
	})
	serveBoth(t, h, func(t *testing.T, url string, c *http.Client) {
		for _, path := range []string{"/much", "/api/v1/pods"} { // with a goroutine of its own and without
			if path != "/much" && !strings.HasSuffix(t.Name(), "2") {
				continue // crypto/tls takes 5 s to close a connection that nobody reads
			}
			w, err := c.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Body.Close()
			if err := <-ended; err == nil {
				t.Errorf("%s: the handler could write all it wanted", path)
			}
			if _, err := io.Copy(io.Discard, w.Body); err == nil || w.Header.Get("X-Handler") != "yes" {
				t.Errorf("%s: %v, %v", path, w.Header, err)
			}
		}
		w, err := c.Get(url + "/half")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		if body, err := io.ReadAll(w.Body); err == nil || string(body) != "half" {
			t.Errorf("half: %q %v", body, err)
		}
		release <- true
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestResponsesBeforeTheDeadlineAreUnchanged checks that a response, headers without a response, and a panic are the
// same with and without a separate goroutine.
func TestResponsesBeforeTheDeadlineAreUnchanged(t *testing.T) {
	h := filtered(time.Minute, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Handler", "yes")
		r.Header.Del("X-Mine")
		switch r.URL.Path {
		case "/answer":
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "tea")
		case "/panic":
			panic("oh")
		}
	})
	for path, status := range map[string]int{"/answer": http.StatusTeapot, "/nothing": http.StatusOK} {
		w := httptest.NewRecorder()
		w.Header().Set("X-Before", "yes")
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Mine", "yes")
		h.ServeHTTP(w, r)
		if r.Header.Get("X-Mine") != "yes" {
			t.Error("the handler shares the headers of the request with net/http")
		}
		if w.Code != status || w.Header().Get("X-Handler") != "yes" || w.Header().Get("X-Before") != "yes" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	defer func() {
		if cause := recover(); cause != "oh" {
			t.Errorf("panic: %v", cause)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/panic", nil))
}

// TestEndsAtTheSameMoment ends the handler and the time of the request at the same moment. There has to be exactly
// one answer, and no handler that still runs.
func TestEndsAtTheSameMoment(t *testing.T) {
	var running atomic.Int64
	workers := newWorkers(t.Context())
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		late := make(chan bool, 1)
		o := Options{Grace: time.Minute, Running: &running, Abandoned: func(bool) { late <- true }, workers: workers}
		w := httptest.NewRecorder()
		o.serveWithDeadline(ctx, w, httptest.NewRequest("GET", "/", nil),
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				cancel()
				w.Header().Set("X", "y")
				w.WriteHeader(http.StatusOK)
			}))
		if w.Code == http.StatusGatewayTimeout {
			<-late
		}
		cancel()
	}
	wait.Until(t, "no handler to be counted", func() bool { return running.Load() == 0 }) // falls after Abandoned
}

func BenchmarkFilter(b *testing.B) {
	h := filtered(time.Minute, b.Context(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
	})
	for name, path := range map[string]string{"Reads": "/api/v1/pods", "Others": "/version"} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("GET", path, nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}

// TestWriteDeadlineReachesTheConnection checks that a handler can limit the time of a response that a client does
// not read.
func TestWriteDeadlineReachesTheConnection(t *testing.T) {
	result := make(chan error, 1)
	h := withOptions(Options{Limit: time.Minute, Stopping: t.Context()}, func(w http.ResponseWriter, _ *http.Request) {
		result <- http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
	})
	serveBoth(t, h, func(t *testing.T, url string, c *http.Client) {
		response, err := c.Post(url+"/api/v1/namespaces/default/pods", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // it is empty
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}
