package server

import (
	"net/http"
	"strings"
	"testing"
)

func TestAPIServicesAreRestoredAtTheStart(t *testing.T) {
	c := testConfig(t)
	s, err := Start(t.Context(), c.Config, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	admin := httpClient(t, s, true)
	const path = "/apis/apiregistration.k8s.io/v1/apiservices/"
	for name, change := range map[string]string{
		"v1.apps":  `{"spec":{"groupPriorityMinimum":1}}`,
		"v1.batch": `{"metadata":{"labels":null},"spec":{"groupPriorityMinimum":1}}`, // somebody else's now
	} {
		if a := sendJSON(
			t, admin, http.MethodPatch, s.URL()+path+name, change, "Content-Type", "application/merge-patch+json",
		); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
	}
	stop(t, s)
	s = start(t, c)
	admin = httpClient(t, s, true)
	for name, want := range map[string]string{
		"v1.apps": `"groupPriorityMinimum":17800`, "v1.batch": `"groupPriorityMinimum":1,`,
	} {
		if a := sendJSON(t, admin, http.MethodGet, s.URL()+path+name, ""); !strings.Contains(a.body, want) {
			t.Errorf("%s: %s, want %s", name, a.body, want)
		}
	}
}
