package controllertest

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

func TestAPIServicesAreRestoredAtTheStart(t *testing.T) {
	c := servertest.Default()
	c.Storage.Backend, c.Storage.DataDir = config.StorageEmbedded, t.TempDir()
	s := servertest.Start(t, c)
	const path = "/apis/apiregistration.k8s.io/v1/apiservices/"
	for name, change := range map[string]string{
		"v1.apps":  `{"spec":{"groupPriorityMinimum":1}}`,
		"v1.batch": `{"metadata":{"labels":null},"spec":{"groupPriorityMinimum":1}}`, // a change by a user
	} {
		s.Patch(path+name, change)
	}
	servertest.Stop(t, s)
	s = servertest.Start(t, c)
	for name, want := range map[string]string{
		"v1.apps": `"groupPriorityMinimum":17800`, "v1.batch": `"groupPriorityMinimum":1,`,
	} {
		if got := s.Get(path + name); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
