package body

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// post returns a request of a user. length is its Content-Length.
func post(user string, body io.Reader, length int64) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces", body)
	r.ContentLength = length
	ctx := request.WithInfo(r.Context(), request.ParseInfo(r))
	return r.WithContext(request.WithUser(ctx, &request.User{Name: user}))
}

// content is a handler that records the body of the request.
type content struct {
	got []byte
	err error
}

func (c *content) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.got, c.err = io.ReadAll(r.Body)
}

func TestBodiesAreReadCompletely(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abcdef"), scheme.MaxBytes/16+1)
	failure := errors.New("the connection broke")
	for _, size := range []int{1, freeBytes - 1, freeBytes, freeBytes + 1, growthFactor*freeBytes - 1,
		growthFactor * freeBytes, 1 << 20, scheme.MaxBytes,
		scheme.MaxBytes + 1} {
		for _, length := range []int64{int64(size), -1} {
			for _, end := range []error{nil, failure} {
				var h content
				reader := io.Reader(bytes.NewReader(all[:size]))
				if end != nil {
					reader = io.MultiReader(reader, broken{end})
				}
				budget := fairshare.NewPool(Budget)
				New(budget, context.Background())(&h).ServeHTTP(httptest.NewRecorder(), post("a", reader, length))
				tooLarge := size > scheme.MaxBytes // only a part has to be read
				if !bytes.Equal(h.got, all[:size]) || !tooLarge && !errors.Is(h.err, end) {
					t.Errorf("%d bytes, announced %d: %d bytes, %v", size, length, len(h.got), h.err)
				}
				if budget.Taken() != 0 {
					t.Errorf("%d bytes of the budget stay taken", budget.Taken())
				}
			}
		}
	}
}

// broken is a connection that breaks.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// slow is a body that returns some bytes, signals that, and then waits.
type slow struct {
	have   int
	waits  chan<- bool
	resume <-chan bool
}

func (s *slow) Read(p []byte) (int, error) {
	if s.have == 0 {
		s.waits <- true
		<-s.resume
		return 0, io.EOF
	}
	n := min(len(p), s.have)
	s.have -= n
	return n, nil
}

// TestTheBudgetIsShared checks that a user whose bodies use up the user's share is refused,
// while other users are served.
func TestTheBudgetIsShared(t *testing.T) {
	const size = 1 << 20
	waits, resume, done := make(chan bool), make(chan bool), make(chan bool)
	f := New(fairshare.NewPool(8*size),
		context.Background())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	serve := func(user string, sent, announced int) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		f.ServeHTTP(responserecorder.Wrap(w), post(user, &slow{sent, waits, resume}, int64(announced)))
		return w
	}
	begin := func(user string, sent, announced int) {
		go func() { serve(user, sent, announced); done <- true }()
		<-waits
	}
	for range 20 {
		begin("joe", 100, size)
	}
	for range 7 {
		begin("eve", size, size)
	}
	if w := serve("eve", size, size); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("more than a user's share: %d", w.Code)
	}
	begin("ann", size/8, size/8)
	close(resume)
	for range 28 {
		<-done
	}
}

func TestReadsAndUpgradesAreLeftAlone(t *testing.T) {
	for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces/n/pods/p/exec"} {
		r := httptest.NewRequest(http.MethodPost, path, broken{errors.New("read")})
		if path == "/api/v1/namespaces" {
			r.Method = http.MethodGet
		}
		r = r.WithContext(request.WithInfo(r.Context(), request.ParseInfo(r)))
		if isBuffered(r) {
			t.Errorf("%s %s is read", r.Method, path)
		}
	}
}
