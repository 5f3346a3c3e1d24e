package responserecorder

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// seat records the names of the methods that are called.
type seat []string

func (s *seat) Pause()           { *s = append(*s, "pause") }
func (s *seat) Resume()          { *s = append(*s, "resume") }
func (s *seat) Read(func()) bool { return true }
func (s *seat) Release()         { *s = append(*s, "release") }

// writer notes the seat's state at each write and flush.
type writer struct {
	*httptest.ResponseRecorder
	seat *seat
}

func (w writer) Write(b []byte) (int, error) {
	*w.seat = append(*w.seat, "write")
	return w.ResponseRecorder.Write(b)
}
func (w writer) Flush() { *w.seat = append(*w.seat, "flush") }

// TestRecorder writes a response and compares what is recorded.
func TestRecorder(t *testing.T) {
	var s seat
	inner := httptest.NewRecorder()
	w := Wrap(writer{inner, &s})
	var copied bytes.Buffer
	var started []int
	writes, initial := 0, 0
	w.Seat, w.Copy, w.Started = &s, &copied, func(status int) { started = append(started, status) }
	w.Wrote, w.InitialEvents = func(time.Duration) { writes++ }, func() { initial++ }
	if Wrap(w) != w {
		t.Error("a Recorder was wrapped again")
	}
	request.Warn(request.WithInfo(context.Background(), &request.Info{Warnings: &w.Warnings}), "look out")
	for _, part := range []string{"ab", "c"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Error(n, err)
		}
	}
	w.Flush()
	w.WriteHeader(500) // too late
	w.InitialEventsSent()
	w.ReleaseSeat() // again
	w.Flush()
	want := []string{"pause", "write", "resume", "pause", "write", "resume", "pause", "flush", "resume", "release", "flush"}
	if !slices.Equal(s, want) {
		t.Errorf("the seat: %q, want %q", s, want)
	}
	if w.Status != 200 || w.Bytes != 3 || copied.String() != "abc" || inner.Body.String() != "abc" || inner.Code != 200 ||
		!slices.Equal(started, []int{200}) || writes != 2 || initial != 1 {
		t.Errorf("%+v, copied %q, started %v, %d writes, %d initial", w, &copied, started, writes, initial)
	}
	if got := inner.Header().Get("Warning"); got != `299 - "look out"` {
		t.Errorf("the warning: %s", got)
	}
}

// TestStatus checks which status is recorded. A status that is not final, such as 103, is not recorded.
func TestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		act  func(*Recorder)
		want int
	}{
		"nothing":     {func(*Recorder) {}, 0},
		"early hints": {func(w *Recorder) { w.WriteHeader(http.StatusEarlyHints) }, 0},
		"upgrade":     {func(w *Recorder) { w.WriteHeader(http.StatusSwitchingProtocols) }, 101},
		"the first":   {func(w *Recorder) { w.WriteHeader(201); w.WriteHeader(500) }, 201},
		"flush":       {func(w *Recorder) { w.Flush() }, 200},
		"no hijack": {func(w *Recorder) {
			if _, _, err := w.Hijack(); err == nil {
				t.Error("a response without a connection was hijacked")
			}
		}, 0},
	} {
		w := Wrap(httptest.NewRecorder())
		if test.act(w); w.Status != test.want {
			t.Errorf("%s: %d, want %d", name, w.Status, test.want)
		}
	}
}

// TestHijack records the status of a connection that a handler takes.
func TestHijack(t *testing.T) {
	status := make(chan int, 1)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w := Wrap(rw)
		conn, _, err := http.NewResponseController(w).Hijack()
		status <- w.Status
		if err == nil {
			_ = conn.Close()
		}
	}))
	defer s.Close()
	if w, err := s.Client().Get(s.URL); err == nil {
		_ = w.Body.Close()
	}
	if got := <-status; got != http.StatusSwitchingProtocols {
		t.Errorf("the status is %d", got)
	}
}
