package authz

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

func TestOnlyRequestsForManyObjectsHaveSelectors(t *testing.T) {
	for line, want := range map[[2]string]bool{
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName=n"}:                true,
		{"GET", "/api/v1/pods?field%53elector=spec.nodeName=n"}:              true,
		{"GET", "/api/v1/pods?watch=1&fieldSelector=spec.nodeName=n"}:        true,
		{"DELETE", "/api/v1/pods?fieldSelector=spec.nodeName=n"}:             true,
		{"GET", "/api/v1/watch/pods?fieldSelector=spec.nodeName=n"}:          false,
		{"GET", "/api/v1/namespaces/a/pods/p?fieldSelector=spec.nodeName=n"}: false,
		{"POST", "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName=n"}:  false,
	} {
		r := httptest.NewRequest(line[0], line[1], nil)
		a := AttributesOf(r.WithContext(request.WithInfo(r.Context(), request.ParseInfo(r))))
		if got := a.Selectors.FieldEquals("spec.nodeName", "n"); got != want {
			t.Errorf("%v: selects %v, want %v", line, got, want)
		}
	}
}

// TestSelectorsAreParsedWhenAsked counts allocations: a selector that no authorizer
// asks for costs the same whatever its length.
func TestSelectorsAreParsedWhenAsked(t *testing.T) {
	const most = 30
	query := "labelSelector=" + strings.Repeat("a,", 5000) + "b"
	if n := testing.AllocsPerRun(10, func() { ParseSelectors(query) }); n > most {
		t.Errorf("%v allocations without being asked", n)
	}
	s := ParseSelectors(query)
	for range 2 {
		if requirements, err := s.Labels(); len(requirements) != 5001 || err != nil {
			t.Errorf("%d requirements, %v", len(requirements), err)
		}
	}
	if _, err := ParseSelectors("labelSelector=" + strings.Repeat("a,", 20_000)).Labels(); err == nil {
		t.Error("a selector beyond the limits is parsed")
	}
}
