package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func TestServerName(t *testing.T) {
	// kube-apiserver 1.36 uses this name for itself on a machine with the host name vm.
	if got := ServerName("vm"); got != "apiserver-wlv32tlttr4jl3gtroqexyxapa" {
		t.Error(got)
	}
}

func flows(t *testing.T) (levels, schemas []flowObject) {
	t.Helper()
	all, err := readFlowObjects()
	if err != nil {
		t.Fatal(err)
	}
	return all.levels, all.schemas
}

func TestFlowSchemasReferToLevels(t *testing.T) {
	levels, schemas := flows(t)
	var names []string
	for _, l := range levels {
		names = append(names, l.GetName())
	}
	if len(levels) != 8 || len(schemas) != 11 {
		t.Errorf("%d levels, %d schemas", len(levels), len(schemas))
	}
	for _, s := range schemas {
		if level := s.Object.(*flowcontrolv1.FlowSchema).Spec.PriorityLevelConfiguration.Name; !slices.Contains(names,
			level) {
			t.Errorf("%s refers to %s", s.GetName(), level)
		}
	}
}

func find(list []flowObject, name string) flowObject {
	return list[slices.IndexFunc(list, func(f flowObject) bool { return f.GetName() == name })]
}

func TestRevision(t *testing.T) {
	_, schemas := flows(t)
	for _, test := range []struct {
		what, name, annotation string
		generation             int64
		changed                bool
		revised, keeps         bool
		after                  string
	}{
		{"as it should be", "system-nodes", "true", 1, false, false, false, "true"},
		{"changed, and follows", "system-nodes", "true", 2, true, true, false, "true"},
		{"taken over", "system-nodes", "false", 2, true, false, true, "false"},
		{"mandatory, taken over", "catch-all", "false", 2, true, true, false, "true"},
		{"without annotation, never changed", "system-nodes", "", 1, true, true, false, "true"},
		{"without annotation, changed", "system-nodes", "", 2, true, true, true, "false"},
		{"with an annotation of no sense", "system-nodes", "x", 2, true, true, true, "false"},
	} {
		f := find(schemas, test.name)
		obj := f.Object.DeepCopyObject().(*flowcontrolv1.FlowSchema)
		obj.Generation = test.generation
		obj.Annotations = map[string]string{"other": "kept"}
		if test.annotation != "" {
			obj.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = test.annotation
		}
		if test.changed {
			obj.Spec.MatchingPrecedence = 7
		}
		if got := f.update(obj); got != test.revised {
			t.Errorf("%s: revised %v", test.what, got)
		}
		if kept := obj.Spec.MatchingPrecedence == 7; kept != test.keeps {
			t.Errorf("%s: keeps its own %v", test.what, kept)
		}
		if got := obj.Annotations[flowcontrolv1.AutoUpdateAnnotationKey]; got != test.after ||
			obj.Annotations["other"] != "kept" {
			t.Errorf("%s: %v", test.what, obj.Annotations)
		}
	}
}

// TestExemptLevelMayBeChanged checks that an operator's setting of the exempt level is
// not reset.
func TestExemptLevelMayBeChanged(t *testing.T) {
	levels, _ := flows(t)
	f := find(levels, "exempt")
	obj := f.Object.DeepCopyObject().(*flowcontrolv1.PriorityLevelConfiguration)
	obj.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}
	shares := int32(9)
	obj.Spec.Exempt.NominalConcurrencyShares = &shares
	if f.update(obj) || *obj.Spec.Exempt.NominalConcurrencyShares != 9 {
		t.Errorf("%+v", obj.Spec.Exempt)
	}
	obj.Spec = flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited}
	if !f.update(obj) || obj.Spec.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		t.Errorf("%+v", obj.Spec)
	}
}

func TestDanglingCondition(t *testing.T) {
	s := &flowcontrolv1.FlowSchema{}
	s.Spec.PriorityLevelConfiguration.Name = "low"
	there := danglingCondition(s, true)
	if there.Status != flowcontrolv1.ConditionFalse ||
		there.Message != `This FlowSchema references the PriorityLevelConfiguration object named "low" and it exists` {
		t.Errorf("%+v", there)
	}
	s.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{*there}
	if danglingCondition(s, true) != nil {
		t.Error("written again")
	}
	gone := danglingCondition(s, false)
	if gone == nil || gone.Status != flowcontrolv1.ConditionTrue || gone.Reason != "NotFound" {
		t.Errorf("%+v", gone)
	}
}

func TestSlices(t *testing.T) {
	k := &Keeper{Port: 6443}
	for _, test := range []struct {
		addresses []string
		family    discoveryv1.AddressType
		endpoints int
	}{
		{[]string{"10.0.0.1", "10.0.0.2"}, discoveryv1.AddressTypeIPv4, 2},
		{[]string{"2001:db8::1"}, discoveryv1.AddressTypeIPv6, 1},
		{[]string{"10.0.0.1", "2001:db8::1"}, discoveryv1.AddressTypeIPv4, 1},
		{nil, discoveryv1.AddressTypeIPv4, 0},
	} {
		s := k.slice(test.addresses)
		if s.AddressType != test.family || len(s.Endpoints) != test.endpoints ||
			s.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			t.Errorf("%v: %+v", test.addresses, s)
		}
	}
}

// TestLeaseOfAServerThatLeaves: a server reads the lease of an earlier server with its name, and that lease is
// deleted before the server renews it. The server must then create a lease of its own, or it would not start.
func TestLeaseOfAServerThatLeaves(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		c.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	resources := directory.New()
	resources.PutBuiltIn(reg, nil)
	k := &Keeper{Registry: reg, Client: client.New(resources, write.New(reg, nil, nil, nil), "test"), Now: time.Now, Hostname: "vm"}
	const seen = true
	if err := k.renew(t.Context(), "a", seen, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, found, err := stored[*coordinationv1.Lease](t.Context(), k, leases, metav1.NamespaceSystem, "a"); err != nil || !found {
		t.Errorf("the server has no lease: %v", err)
	}
}

func TestServersLease(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	first, second := &EtcdLeases{store, "10.0.0.1"}, &EtcdLeases{store, "10.0.0.2"}
	for range 2 { // a lease is refreshed
		for _, l := range []*EtcdLeases{first, second} {
			if _, err := l.Servers(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := first.Servers(t.Context()); err != nil || strings.Join(got, " ") != "10.0.0.1 10.0.0.2" {
		t.Errorf("%v %v", got, err)
	}
	if got, err := first.Leave(t.Context()); err != nil || strings.Join(got, " ") != "10.0.0.2" {
		t.Errorf("%v %v", got, err)
	}
	entry, _, err := store.Get(t.Context(), "/registry/masterleases/10.0.0.2", 0)
	if err != nil || !strings.HasPrefix(string(entry.Value), "k8s\x00") {
		t.Errorf("%q %v", entry.Value, err)
	}
	value, err := second.lease(entry.Value)
	if err != nil {
		t.Fatal(err)
	}
	if string(value) == string(entry.Value) {
		t.Error("a refreshed lease is the same: nothing would be written")
	}
}

func certificate(t *testing.T, name int64, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(name), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestTrustIsMerged(t *testing.T) {
	now := time.Now()
	a, b, old := certificate(t, 1, now.Add(time.Hour)), certificate(t, 2, now.Add(time.Hour)),
		certificate(t, 3, now.Add(-time.Hour))
	own := AuthenticationTrust{ClientCA: append(slices.Clone(a), b...)}
	data, err := own.merge(map[string]string{"client-ca-file": string(old) + string(a), "other": "x"}, now)
	if err != nil || len(data) != 1 || data["client-ca-file"] != string(a)+string(b) {
		t.Errorf("%v %v", data, err)
	}
	own = AuthenticationTrust{ProxyCA: a, UsernameHeaders: []string{"X-User"}, AllowedNames: []string{"proxy"},
		GroupHeaders: []string{"X-Group"}}
	data, err = own.merge(map[string]string{"requestheader-username-headers": `["X-Remote-User"]`}, now)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"requestheader-client-ca-file": string(a), "requestheader-username-headers": `["X-Remote-User","X-User"]`,
		"requestheader-group-headers":        `["X-Group"]`,
		"requestheader-extra-headers-prefix": `[]`, "requestheader-allowed-names": `["proxy"]`,
	} {
		if data[key] != want {
			t.Errorf("%s: %q", key, data[key])
		}
	}
	if _, ok := data["requestheader-uid-headers"]; ok || len(data) != 5 {
		t.Errorf("%v", data)
	}
	if again, err := own.merge(data, now); err != nil || len(again) != len(data) ||
		again["requestheader-username-headers"] != data["requestheader-username-headers"] {
		t.Errorf("not stable: %v %v", again, err)
	}
}
