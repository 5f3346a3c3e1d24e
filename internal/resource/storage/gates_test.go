package storage

import (
	"reflect"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// kindsOf returns the kinds of a minor, by the names of their resources.
func kindsOf(t *testing.T, minor int, set ...string) map[string]*registry.Kind {
	gates, err := features.Parse(set, release.Of(minor))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*registry.Kind{}
	for _, k := range Kinds(gates) {
		kinds[k.Names.Resource] = k
	}
	return kinds
}

// TestGatesOfCSIDrivers creates and updates drivers with fields of gates that are off in 1.34, and on in 1.37.
func TestGatesOfCSIDrivers(t *testing.T) {
	driver := func() *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
			TokenRequests: []storagev1.TokenRequest{{}}, ServiceAccountTokenInSecrets: new(true),
			NodeAllocatableUpdatePeriodSeconds: new(int64(10)), SELinuxMount: new(true),
		}}
	}
	old, now := kindsOf(t, 34, "SELinuxMountReadWriteOncePod=false")["csidrivers"], kindsOf(t, 37)["csidrivers"]
	bare, d := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{}}}}, driver()
	if old.Strategy.PrepareCreate(t.Context(), d); !reflect.DeepEqual(d, bare) {
		t.Errorf("a new driver has %+v", d.Spec)
	}
	d = driver()
	if old.Strategy.PrepareUpdate(d, bare); !reflect.DeepEqual(d.Spec, bare.Spec) {
		t.Errorf("a changed driver has %+v", d.Spec)
	}
	d = driver()
	if old.Strategy.PrepareUpdate(d, driver()); !reflect.DeepEqual(d, driver()) {
		t.Errorf("a driver loses what it had: %+v", d.Spec)
	}
	if now.Strategy.PrepareCreate(t.Context(), d); !reflect.DeepEqual(d, driver()) {
		t.Errorf("with all gates, a driver has %+v", d.Spec)
	}
	if got := old.Strategy.Warn(bare, nil); len(got) != 0 {
		t.Errorf("1.34 warns: %q", got)
	}
	if got := now.Strategy.Warn(bare, nil); len(got) != 1 {
		t.Errorf("1.37 warns: %q", got)
	}
	for k, labels := range map[*registry.Kind]bool{old: false, now: true} {
		d := &storagev1.CSIDriver{}
		if k.Versions[0].Default(d); (d.Spec.SELinuxMount != nil) != labels {
			t.Errorf("the default of seLinuxMount is %v", d.Spec.SELinuxMount)
		}
	}
}

// TestMutableCSINodeAllocatableCount changes how many volumes a driver can attach on a node, and sets the code of an error.
func TestMutableCSINodeAllocatableCount(t *testing.T) {
	node := func(count int32) *storagev1.CSINode {
		return &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "d", NodeID: "n", Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}}}
	}
	attachment := func(code *int32) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{
			AttachError: &storagev1.VolumeError{Message: "m", ErrorCode: code}}}
	}
	for minor, want := range map[int]string{
		34: `spec.drivers: Invalid value: {"Name":"d","NodeID":"n","TopologyKeys":null,"Allocatable":{"Count":2}}: field is immutable`,
		35: "",
	} {
		kinds := kindsOf(t, minor)
		errs := kinds["csinodes"].Strategy.ValidateUpdate(t.Context(), node(2), node(1))
		var got string
		for _, err := range errs {
			got += err.Error()
		}
		if got != want {
			t.Errorf("1.%d: %s, want %s", minor, got, want)
		}
		for _, was := range []*int32{nil, new(int32(4))} {
			a := attachment(new(int32(5)))
			kinds["volumeattachments"].Strategy.PrepareStatusUpdate(a, attachment(was))
			if kept := a.Status.AttachError.ErrorCode != nil; kept != (minor > 34 || was != nil) {
				t.Errorf("1.%d: the code after %v is kept: %v", minor, was, kept)
			}
		}
	}
}
