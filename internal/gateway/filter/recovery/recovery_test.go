package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// TestPanics compares what a client gets, and what the log says, after panics of a handler.
func TestPanics(t *testing.T) {
	wrapped := fmt.Errorf("gone: %w", http.ErrAbortHandler)
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		code    int
		again   any // what the filter itself panics with
		log     string
		aborted bool
	}{
		"no panic":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }, 201, nil, "", false},
		"before the answer": {func(http.ResponseWriter, *http.Request) { panic("no idea") }, 500, nil, "no idea", false},
		"after the status": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("late") }, 200, http.ErrAbortHandler, "late", false,
		},
		"an abort": {func(http.ResponseWriter, *http.Request) { panic(wrapped) }, 200, wrapped, "", true},
		"an error": {func(http.ResponseWriter, *http.Request) { panic(errors.New("broken")) }, 500, nil, "broken", false},
	} {
		var log bytes.Buffer
		info := &request.Info{Tracker: &request.Tracker{}}
		r := httptest.NewRequest("GET", "/api?token=secret", nil)
		r = r.WithContext(request.WithInfo(r.Context(), info))
		w := httptest.NewRecorder()
		again := func() (cause any) {
			defer func() { cause = recover() }()
			New(slog.New(slog.NewTextHandler(&log, nil)))(test.handler).ServeHTTP(w, r)
			return nil
		}()
		if again != test.again || w.Code != test.code || info.Tracker.Aborted() != test.aborted {
			t.Errorf("%s: %d, panic %v, aborted: %t", name, w.Code, again, info.Tracker.Aborted())
		}
		if (log.Len() > 0) != (test.log != "") || !strings.Contains(log.String(), test.log) ||
			strings.Contains(log.String(), "secret") {
			t.Errorf("%s: the log: %s", name, &log)
		}
		const message = "This request caused apiserver to panic. Look in the logs for details.\n"
		if test.code == 500 && w.Body.String() != message {
			t.Errorf("%s: %q", name, w.Body)
		}
	}
}
