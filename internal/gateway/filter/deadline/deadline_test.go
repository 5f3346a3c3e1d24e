package deadline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

func filtered(limit time.Duration, stopping context.Context, h http.HandlerFunc) http.Handler {
	return withOptions(Options{Limit: limit, Stopping: stopping, Running: &atomic.Int64{}, Abandoned: func(bool) {}}, h)
}

func withOptions(o Options, h http.HandlerFunc) http.Handler {
	next := New(o)(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(request.WithInfo(r.Context(), request.ParseInfo(r))))
	})
}

const timedOut = `{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the ` +
	`allotted timeout","reason":"Timeout","details":{},"code":504}` + "\n"

// TestErrorsOfTheDeadlineAreTimeouts checks that all errors that follow from the end of the context are answered
// in the same way.
func TestErrorsOfTheDeadlineAreTimeouts(t *testing.T) {
	for _, url := range []string{"/api/v1/pods", "/api/v1/pods?timeout=1ms"} {
		limit := time.Millisecond
		if url != "/api/v1/pods" {
			limit = time.Hour
		}
		w := httptest.NewRecorder()
		filtered(limit, t.Context(), func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			apiresponse.Error(w, r, kerrors.NewInternalError(errors.New("interrupted")))
		}).ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		if w.Code != http.StatusGatewayTimeout || w.Body.String() != timedOut ||
			w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %v %q", url, w.Code, w.Header(), w.Body)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for url, want := range map[string]time.Duration{
		"/api/v1/pods": time.Minute, "/api/v1/pods?timeout=10s": 10 * time.Second, "/api/v1/pods?timeout=0s": time.Minute,
		"/api/v1/pods?timeout=2m": time.Minute, "/api/v1/pods?timeout=-1s": time.Minute, "/api/v1/pods?timeout=": time.Minute,
	} {
		begin := time.Now()
		filtered(time.Minute, t.Context(), func(_ http.ResponseWriter, r *http.Request) {
			end, ok := r.Context().Deadline()
			if !ok || end.Before(begin.Add(want)) || end.After(time.Now().Add(want)) {
				t.Errorf("%s: %v after %v, %v", url, end, begin, ok)
			}
		}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", url, nil))
	}
	w := httptest.NewRecorder()
	filtered(time.Minute, t.Context(), func(http.ResponseWriter, *http.Request) { t.Error("served") }).
		ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/pods?timeout=x", nil))
	if w.Code != http.StatusBadRequest {
		t.Errorf("%d", w.Code)
	}
}

func TestLongRunningRequestsEndWithTheServer(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	filtered(time.Nanosecond, stopping, func(_ http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); ok {
			t.Error("a watch has a deadline")
		}
		stop()
		<-r.Context().Done()
	}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil))
}

// TestLongRunningRequestsEndOverATime checks that they do not all end at the moment at which the server stops.
func TestLongRunningRequestsEndOverATime(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	stop()
	ended := 0
	for range 20 {
		o := Options{Stopping: stopping, Spread: time.Millisecond}
		withOptions(o, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done() // the test's own time bounds it
			ended++
		}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil))
	}
	if ended != 20 {
		t.Error(ended)
	}
	o := Options{Stopping: stopping, Spread: time.Hour}
	withOptions(o, func(_ http.ResponseWriter, r *http.Request) {
		if err := r.Context().Err(); err != nil {
			t.Error("it ends at once")
		}
	}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil))
}

// TestBodyThatIsNeverSent checks that a client which does not send the announced body keeps a handler no longer than
// the timeout of the request.
func TestBodyThatIsNeverSent(t *testing.T) {
	// The handler may be writing its answer when the time is up. The grace lets it finish the answer.
	o := Options{Limit: 10 * time.Millisecond, Grace: time.Minute, Stopping: t.Context()}
	o.Running, o.Abandoned = &atomic.Int64{}, func(bool) {}
	s := httptest.NewServer(withOptions(o, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if err == nil {
			t.Error("the body came")
		}
		apiresponse.Error(w, r, kerrors.NewBadRequest(err.Error()))
	}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn,
		"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // the test's own time bounds it
	if err != nil || len(answer) < 12 || string(answer[9:12]) != "504" {
		t.Errorf("%q %v", answer, err)
	}
}

// TestTheConnectionSurvivesATimeout has a request of HTTP/1.1 that is answered 504 after its body was read. Its
// connection has to serve the next request, or be closed. (Once, all later requests were answered 504.)
func TestTheConnectionSurvivesATimeout(t *testing.T) {
	o := Options{Limit: time.Minute, Grace: time.Minute, Stopping: t.Context(), Running: &atomic.Int64{}}
	o.Abandoned = func(bool) {}
	s := httptest.NewServer(withOptions(o, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil && r.URL.Query().Has("timeout") {
			<-r.Context().Done()
		}
		if err := r.Context().Err(); err != nil {
			apiresponse.Error(w, r, err)
		}
	}))
	defer s.Close()
	served := 0
	for i := range 60 {
		func() {
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			send := func(request, body string) *http.Response {
				t.Helper()
				text := fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", request, len(body), body)
				if _, err := io.WriteString(conn, text); err != nil {
					return nil
				}
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					return nil
				}
				if _, err := io.Copy(io.Discard, answer.Body); err != nil {
					t.Fatal(err)
				}
				return answer
			}
			// The deadline comes before, while and after the body is read.
			late := send(fmt.Sprintf("POST /api/v1/namespaces?timeout=%dus", 1+i*40), strings.Repeat("x", 1<<20))
			if late == nil {
				return
			}
			if late.StatusCode != http.StatusGatewayTimeout {
				t.Errorf("the late request: %s", late.Status)
			}
			if late.Close {
				return
			}
			next := send("POST /api/v1/namespaces", "y")
			if next == nil {
				return
			}
			served++
			if next.StatusCode != http.StatusOK {
				t.Errorf("timeout of %d us: the next request was answered %s", 1+i*40, next.Status)
			}
		}()
	}
	if served == 0 {
		t.Error("no connection was used again")
	}
}
