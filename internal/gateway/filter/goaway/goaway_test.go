package goaway

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestChance(t *testing.T) {
	number := 0.0
	h := New(0.01, func() float64 { return number })(http.NotFoundHandler())
	for _, test := range []struct {
		major  int
		number float64
		away   bool
	}{{2, 0.009, true}, {2, 0.01, false}, {1, 0, false}} {
		number = test.number
		r := httptest.NewRequest("GET", "/", nil)
		r.ProtoMajor = test.major
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if (w.Header().Get("Connection") == "close") != test.away {
			t.Errorf("%+v: %v", test, w.Header())
		}
	}
	for chance, valid := range map[float64]bool{0: true, 0.02: true, -0.1: false, 0.021: false} {
		if err := Validate(chance); (err == nil) != valid {
			t.Errorf("%v: %v", chance, err)
		}
	}
}
