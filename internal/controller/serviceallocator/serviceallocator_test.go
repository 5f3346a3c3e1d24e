package serviceallocator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/controller/serviceallocator"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// writer writes objects.
var writer = writetest.New(nil)

var (
	services = schema.GroupResource{Resource: "services"}
	ips      = schema.GroupResource{Group: "networking.k8s.io", Resource: "ipaddresses"}
	cidrs    = schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
)

// A replica is one API server: a registry of its own, on a store that it may share with others.
type replica struct {
	*registry.Registry
	*serviceallocator.Services
	t *testing.T
}

// replicas returns API servers on one store, with a range of addresses and ports.
func replicas(t *testing.T, n int, cidr string, ports serviceallocator.PortRange) []*replica {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var list []*replica
	for range n {
		c := cache.New(cache.Options{Store: store})
		t.Cleanup(c.Close)
		reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		a := &serviceallocator.Services{
			Registry: reg, Store: store, Families: []corev1.IPFamily{corev1.IPv4Protocol},
			NodePorts: ports, Now: time.Now, Random: rand.Uint64N,
		}
		if err := a.EnsurePortAllocation(t.Context()); err != nil {
			t.Fatal(err)
		}
		reg.Resource(services).Writer.SetAllocator(a)
		list = append(list, &replica{reg, a, t})
	}
	list[0].addRange("kubernetes", cidr)
	return list
}

func (r *replica) addRange(name, cidr string) {
	r.t.Helper()
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
	if _, err := writer.Create(r.t.Context(), r.Registry.Resource(cidrs), "", c, writetest.Options{}); err != nil {
		r.t.Fatal(err)
	}
}

func service(name string, kind corev1.ServiceType) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}}}
	defaultService(s)
	return s
}

// defaultService sets the default values that a Service of a client has when it reaches the registry.
func defaultService(s *corev1.Service) {
	for _, k := range resource.Kinds(features.Gates{}) {
		if k.Resource == "services" {
			k.Versions[0].Default(s)
		}
	}
}

func (r *replica) create(s *corev1.Service, dryRun bool) (*corev1.Service, error) {
	result, err := writer.Create(r.t.Context(), r.Registry.Resource(services), "default", s,
		writetest.Options{DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	obj, err := r.Registry.Resource(services).Decoder.Decode(r.t.Context(), result.Object)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

func (r *replica) delete(name string) {
	r.t.Helper()
	if _, err := writer.Delete(r.t.Context(), r.Registry.Resource(services), "default", name, &metav1.DeleteOptions{},
		nil); err != nil {
		r.t.Fatal(err)
	}
}

// claimed returns the Service of each allocated address, by address.
func (r *replica) claimed() map[string]string {
	r.t.Helper()
	list, err := r.Registry.List(r.t.Context(), ips, "")
	if err != nil {
		r.t.Fatal(err)
	}
	claims := map[string]string{}
	for _, obj := range list {
		claims[obj.GetName()] = obj.(*networkingv1.IPAddress).Spec.ParentRef.Name
	}
	return claims
}

// TestNothingIsAllocatedTwice: servers on one store create Services at the same time until all addresses and ports
// are used. Each Service gets its own, and exactly the surplus Services are refused.
func TestNothingIsAllocatedTwice(t *testing.T) {
	const each, workers = 12, 4
	list := replicas(t, 3, "10.0.0.0/26", serviceallocator.PortRange{First: 1000, Last: 1099}) // 62 addresses
	var mu sync.Mutex
	made, refused := map[string]string{}, 0
	ports := map[int32]string{}
	var running sync.WaitGroup
	for i, r := range list {
		for w := range workers {
			running.Go(func() {
				for n := range each {
					s, err := r.create(service(fmt.Sprintf("s-%d-%d-%d", i, w, n), corev1.ServiceTypeNodePort), false)
					mu.Lock()
					switch {
					case kerrors.IsInternalError(err) && strings.Contains(err.Error(), "range is full"):
						refused++
					case err != nil:
						t.Error(err)
					case made[s.Spec.ClusterIP] != "" || ports[s.Spec.Ports[0].NodePort] != "":
						t.Errorf("%s has %s and %d, which %s and %s have", s.Name, s.Spec.ClusterIP, s.Spec.Ports[0].NodePort,
							made[s.Spec.ClusterIP], ports[s.Spec.Ports[0].NodePort])
					default:
						made[s.Spec.ClusterIP], ports[s.Spec.Ports[0].NodePort] = s.Name, s.Name
					}
					mu.Unlock()
				}
			})
		}
	}
	running.Wait()
	if want := len(list)*workers*each - 62; len(made) != 62 || refused != want {
		t.Errorf("%d made and %d refused, want 62 and %d", len(made), refused, want)
	}
	claims := list[0].claimed()
	for ip, name := range made {
		if claims[ip] != name {
			t.Errorf("%s is claimed by %q, want %s", ip, claims[ip], name)
		}
	}
	if len(claims) != len(made) {
		t.Errorf("%d claims of %d services", len(claims), len(made))
	}
	for _, name := range made {
		list[1].delete(name)
	}
	if claims := list[2].claimed(); len(claims) != 0 {
		t.Errorf("claims that were left behind: %v", claims)
	}
	if changes, err := list[0].RepairPorts(t.Context(), serviceallocator.PortLeaks{}); err != nil || len(changes) != 0 {
		t.Errorf("%v, %v: there was nothing to mend", changes, err)
	}
}

func TestRefusedServicesTakeNothing(t *testing.T) {
	r := replicas(t, 1, "10.0.0.0/24", serviceallocator.DefaultNodePorts)[0]
	dry, err := r.create(service("a", corev1.ServiceTypeNodePort), true)
	if err != nil || dry.Spec.ClusterIP == "" || dry.Spec.Ports[0].NodePort == 0 {
		t.Fatalf("%v, %v", dry, err)
	}
	bad := service("b", corev1.ServiceTypeNodePort)
	bad.Spec.Ports[0].TargetPort = intstr.FromString("-")
	if _, err := r.create(bad, false); !kerrors.IsInvalid(err) {
		t.Errorf("%v, want it refused", err)
	}
	first := service("c", corev1.ServiceTypeClusterIP)
	if _, err := r.create(first.DeepCopy(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.create(first.DeepCopy(), false); !kerrors.IsAlreadyExists(err) {
		t.Errorf("%v, want it refused", err)
	}
	if claims := r.claimed(); len(claims) != 1 {
		t.Errorf("claims %v, want that of c", claims)
	}
}

func TestChosenAddresses(t *testing.T) {
	r := replicas(t, 1, "10.0.0.0/24", serviceallocator.DefaultNodePorts)[0]
	chosen := func(name, ip string) error {
		s := service(name, corev1.ServiceTypeClusterIP)
		s.Spec.ClusterIP = ip
		_, err := r.create(s, false)
		return err
	}
	for _, c := range []struct{ name, ip, want string }{
		{"a", "10.0.0.7", ""},
		{"b", "10.0.0.7", "failed to allocate IP 10.0.0.7: provided IP is already allocated"},
		{"b", "10.0.1.7", "failed to allocate IP 10.0.1.7: the provided network does not match the current range"},
		{"b", "10.0.0.0", "failed to allocate IP 10.0.0.0: the provided network does not match the current range"},
		{"b", "fd00::1", "IPv6 is not configured on this cluster"},
	} {
		if err := chosen(c.name, c.ip); c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.ip, err, c.want)
		}
	}
	r.addRange("more", "10.0.1.0/24")
	if err := chosen("b", "10.0.1.7"); err != nil {
		t.Errorf("an address of a range that was added: %v", err)
	}
	r.delete("a")
	if err := chosen("c", "10.0.0.7"); err != nil {
		t.Errorf("an address that was given back: %v", err)
	}
}

// TestRepair checks that wrong allocations by other programs are repaired, and that the allocations of Services
// stay.
func TestRepair(t *testing.T) {
	r := replicas(t, 1, "10.0.0.0/24", serviceallocator.DefaultNodePorts)[0]
	s, err := r.create(service("a", corev1.ServiceTypeNodePort), false)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(key string) {
		if _, err := r.Store.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Delete(key)}}); err != nil {
			t.Fatal(err)
		}
	}
	remove(r.Registry.Resource(ips).StoreKey("", s.Spec.ClusterIP))
	orphan := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{
		Name: "10.0.0.99", Labels: map[string]string{networkingv1.LabelManagedBy: serviceallocator.ManagedBy},
		CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
	}, Spec: networkingv1.IPAddressSpec{
		ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "gone"}}}
	fresh := orphan.DeepCopy()
	fresh.Name, fresh.CreationTimestamp = "10.0.0.98", metav1.Now()
	for _, a := range []*networkingv1.IPAddress{orphan, fresh} {
		op, err := r.Registry.Resource(ips).Writer.PutOp(t.Context(), a)
		if err == nil {
			_, err = r.Store.Commit(t.Context(), storage.Txn{Ops: []storage.Op{op}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	changes, err := r.RepairAddresses(t.Context())
	slices.Sort(changes)
	want := []string{"address 10.0.0.99 was allocated, but no service had it",
		"address " + s.Spec.ClusterIP + " of service default/a was not allocated"}
	slices.Sort(want)
	if err != nil || !slices.Equal(changes, want) {
		t.Errorf("%q, %v, want %q", changes, err, want)
	}
	if claims := r.claimed(); len(claims) != 2 || claims[s.Spec.ClusterIP] != "a" || claims["10.0.0.98"] != "gone" {
		t.Errorf("claims %v", claims)
	}
}

// TestLeakedPorts: an allocated port that no Service has is freed after three rounds. A port that a Service has
// but that is not allocated is allocated in the first round.
func TestLeakedPorts(t *testing.T) {
	ctx := context.Background()
	r := replicas(t, 1, "10.0.0.0/24", serviceallocator.PortRange{First: 1000, Last: 1001})[0]
	s, err := r.create(service("a", corev1.ServiceTypeNodePort), false)
	if err != nil {
		t.Fatal(err)
	}
	// The Service is deleted, and its port stays allocated.
	if _, err := r.Store.Commit(ctx,
		storage.Txn{Ops: []storage.Op{storage.Delete(r.Registry.Resource(services).StoreKey("default", "a"))}}); err != nil {
		t.Fatal(err)
	}
	leaks := serviceallocator.PortLeaks{}
	for round := 1; round <= 3; round++ {
		changes, err := r.RepairPorts(ctx, leaks)
		if err != nil || len(changes) != round/3 {
			t.Errorf("round %d: %q, %v", round, changes, err)
		}
	}
	again := service("b", corev1.ServiceTypeNodePort)
	again.Spec.Ports[0].NodePort = s.Spec.Ports[0].NodePort
	if _, err := r.create(again, false); err != nil {
		t.Errorf("the port that was freed: %v", err)
	}
}
