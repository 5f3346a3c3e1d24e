package servicerepair_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/controller/serviceallocator"
	"github.com/keelson-dev/keelson/internal/controller/servicerepair"
)

// lines is a log handler that sends the text of an attribute of each record.
type lines chan string

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool { l <- a.Value.String(); return true })
	return nil
}

// TestRepairs has a Service whose port and address are not allocated. The first round allocates both and logs
// that.
func TestRepairs(t *testing.T) {
	api := clienttest.New(t, "", "test")
	services := &serviceallocator.Services{
		Registry: api.Registry, Store: api.Store, Families: []corev1.IPFamily{corev1.IPv4Protocol},
		NodePorts: serviceallocator.PortRange{First: 30000, Last: 30010}, Now: time.Now, Random: rand.Uint64N,
	}
	if err := services.EnsurePortAllocation(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The allocator is not bound to the resource, so nothing is allocated when the Service is created.
	single := corev1.IPFamilyPolicySingleStack
	for _, r := range []client.CreateRequest{
		{Resource: networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), Object: &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}},
		}},
		{Resource: corev1.SchemeGroupVersion.WithResource("services"), Object: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.7", ClusterIPs: []string{"10.0.0.7"},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: &single,
				Ports: []corev1.ServicePort{{Port: 80, NodePort: 30007}},
			},
		}},
	} {
		if _, err := api.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	log, done := make(lines, 10), make(chan bool)
	ctx, stop := context.WithCancel(t.Context())
	c := &servicerepair.Controller{Services: services, Log: slog.New(log)}
	go func() { c.Run(ctx); close(done) }()
	for _, want := range []string{
		"node port 30007 of service default/s was not allocated", "address 10.0.0.7 of service default/s was not allocated",
	} {
		select {
		case got := <-log:
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("waited 30 s for %q", want)
		}
	}
	stop()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("waited 30 s for the controller to end")
	}
	if _, err := api.Get(t.Context(), client.Ref{
		Resource: networkingv1.SchemeGroupVersion.WithResource("ipaddresses"), Name: "10.0.0.7",
	}); err != nil {
		t.Error(err)
	}
}
