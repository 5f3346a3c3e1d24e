package requestinfo

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAPathThatNamesOnlyAVerb(t *testing.T) {
	h := New()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
	rw := httptest.NewRecorder()
	h.ServeHTTP(rw, httptest.NewRequest("GET", "/api/v1/watch?x=<y>", nil))
	want := "Internal Server Error: \"/api/v1/watch?x=&lt;y&gt;\": failed to create RequestInfo: unable to " +
		"determine kind and namespace from url, /api/v1/watch?x=&lt;y&gt;\n"
	if rw.Code != http.StatusInternalServerError || rw.Body.String() != want {
		t.Errorf("%d %q", rw.Code, rw.Body.String())
	}
}
