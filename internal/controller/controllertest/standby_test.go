package controllertest

import (
	"testing"
	"time"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// TestControllersPause: while a kube-controller-manager holds its lease, the controllers do nothing; when the lease is
// released, they continue.
func TestControllersPause(t *testing.T) {
	s := servertest.Start(t, servertest.Default("namespace-controller"))
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	s.Create(leases, `{"metadata":{"name":"kube-controller-manager"},
		"spec":{"holderIdentity":"other","leaseDurationSeconds":3600,"renewTime":"2026-01-01T00:00:00.000000Z"}}`)
	s.Idle(t)
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	s.Create("/api/v1/namespaces/demo/configmaps", `{"metadata":{"name":"a"}}`)
	s.Do("DELETE", "/api/v1/namespaces/demo", "")
	s.Idle(t) // by now, a running controller would have deleted it
	s.Get("/api/v1/namespaces/demo/configmaps/a")
	s.Patch(leases+"/kube-controller-manager", `{"spec":{"holderIdentity":null}}`)
	s.Gone("/api/v1/namespaces/demo")
}

// TestControllersContinueAfterTheLease: a lease that is not renewed expires.
func TestControllersContinueAfterTheLease(t *testing.T) {
	c := servertest.Default("namespace-controller")
	c.Testing.Clock = clock.New(time.Now())
	s := servertest.Start(t, c)
	s.Create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		`{"metadata":{"name":"kube-controller-manager"},
		"spec":{"holderIdentity":"other","leaseDurationSeconds":2,"renewTime":"2026-01-01T00:00:00.000000Z"}}`)
	s.Idle(t)
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	s.Do("DELETE", "/api/v1/namespaces/demo", "")
	s.Idle(t)
	s.Get("/api/v1/namespaces/demo")
	c.Testing.Clock.Advance(2 * time.Second)
	s.Gone("/api/v1/namespaces/demo")
}
