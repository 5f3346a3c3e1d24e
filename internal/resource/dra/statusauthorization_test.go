package dra

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// statusWith returns a claim that has devices of these drivers on a node, with a status of each.
func statusWith(node string, drivers ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{}
	c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: selectNode(node)}
	for _, driver := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Driver: driver, Pool: "p", Device: "d"})
		c.Status.Devices = append(c.Status.Devices, resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: "p", Device: "d"})
	}
	return c
}

func selectNode(names ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: names}}}}}
}

func withDevices(c *resourcev1.ResourceClaim, devices ...resourcev1.AllocatedDeviceStatus) *resourcev1.ResourceClaim {
	out := c.DeepCopy()
	out.Status.Devices = devices
	return out
}

// asked returns the permissions that an update of a status asks for, none of which the user has, and its errors.
func asked(gates features.Gates, user *request.User, c, old *resourcev1.ResourceClaim) (permissions, errs []string) {
	ctx := request.WithInfo(request.WithUser(context.Background(), user), &request.Info{
		Verb: "update", Group: group, Version: "v1", Resource: "resourceclaims", Subresource: "status", Namespace: "n", Name: "c",
	})
	validate := resourceClaim(gates).Strategy.ValidatePermissions
	for _, err := range validate(ctx, c, old, func(i *request.Info) error {
		where := i.Namespace
		if where == "" {
			where = "*"
		}
		permissions = append(permissions, i.Verb+" "+i.Resource+"/"+i.Subresource+" "+where+"/"+i.Name)
		return errors.New("refused " + i.Verb)
	}) {
		errs = append(errs, err.Error())
	}
	return permissions, errs
}

// TestStatusPermissions has updates of statuses with the permissions that they need.
func TestStatusPermissions(t *testing.T) {
	const binding, arbitrary, associated = "update resourceclaims/binding */", "arbitrary-node:update resourceclaims/driver n/",
		"associated-node:update resourceclaims/driver n/"
	account := func(name string, nodes ...string) *request.User {
		return &request.User{Name: name, Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes}}
	}
	const driverAccount = "system:serviceaccount:n:driver"
	plain := &request.User{Name: "plain"}
	empty, one := &resourcev1.ResourceClaim{}, statusWith("a", "d1")
	bare := withDevices(one)
	reserved := bare.DeepCopy()
	reserved.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: types.UID("u")}}
	reservedForNone := bare.DeepCopy()
	reservedForNone.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{}
	unallocated := withDevices(empty, one.Status.Devices...)
	changed := one.DeepCopy()
	changed.Status.Devices[0].ShareID = new("s")
	network := one.DeepCopy()
	network.Status.Devices[0].NetworkData = &resourcev1.NetworkDeviceData{InterfaceName: "eth0"}
	twoNodes, byLabel := one.DeepCopy(), one.DeepCopy()
	twoNodes.Status.Allocation.NodeSelector = selectNode("a", "b")
	byLabel.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchExpressions = []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}
	for _, c := range []struct {
		name   string
		user   *request.User
		is, as *resourcev1.ResourceClaim
		want   []string
	}{
		{"nothing", plain, one, one, nil},
		{"allocate", plain, bare, empty, []string{binding}},
		{"deallocate", plain, empty, bare, []string{binding}},
		{"deallocate with devices", plain, empty, one, []string{binding}},
		{"reserve", plain, reserved, bare, []string{binding}},
		{"reserve for nothing", plain, reservedForNone, bare, nil},
		{"a device that is not allocated", plain, unallocated, empty, nil},
		{"add a device", plain, one, bare, []string{arbitrary + "d1"}},
		{"remove a device", plain, bare, one, []string{arbitrary + "d1"}},
		{"change a device", plain, network, one, []string{arbitrary + "d1"}},
		{"change the share", plain, changed, one, []string{arbitrary + "d1"}},
		{"the same device twice", plain, withDevices(one, one.Status.Devices[0], one.Status.Devices[0]), one,
			[]string{arbitrary + "d1"}},
		{"two drivers", plain, statusWith("a", "d2", "d1"), withDevices(statusWith("a", "d2", "d1")),
			[]string{arbitrary + "d1", arbitrary + "d2"}},
		{"all", plain, one, empty, []string{binding, arbitrary + "d1"}},

		{"account on the node", account(driverAccount, "a"), one, bare, []string{associated + "d1", arbitrary + "d1"}},
		{"account on another node", account(driverAccount, "b"), one, bare, []string{arbitrary + "d1"}},
		{"account on two nodes", account(driverAccount, "a", "b"), one, bare, []string{arbitrary + "d1"}},
		{"account on no node", account(driverAccount), one, bare, []string{arbitrary + "d1"}},
		{"user on the node", account("plain", "a"), one, bare, []string{arbitrary + "d1"}},
		{"account without a name", account("system:serviceaccount:n:", "a"), one, bare, []string{arbitrary + "d1"}},
		{"account with a wrong namespace", account("system:serviceaccount:N:driver", "a"), one, bare, []string{arbitrary + "d1"}},
		{"account with three parts", account(driverAccount+":x", "a"), one, bare, []string{arbitrary + "d1"}},
		{"allocated on two nodes", account(driverAccount, "a"), twoNodes, withDevices(twoNodes), []string{arbitrary + "d1"}},
		{"allocated by a label", account(driverAccount, "a"), byLabel, withDevices(byLabel), []string{arbitrary + "d1"}},
		{"allocated on a wrong name", account(driverAccount, "A!"), statusWith("A!", "d1"), withDevices(statusWith("A!", "d1")),
			[]string{arbitrary + "d1"}},
	} {
		if got, _ := asked(features.Gates{}, c.user, c.is, c.as); !slices.Equal(got, c.want) {
			t.Errorf("%s: asks for %q, want %q", c.name, got, c.want)
		}
	}

	_, errs := asked(features.Gates{}, account(driverAccount, "a"), one, empty)
	if want := []string{
		`status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", ` +
			`verb="update" permission: refused update`,
		`status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", ` +
			`verb="[associated-node:update arbitrary-node:update]" permission: refused associated-node:update`,
	}; !slices.Equal(errs, want) {
		t.Errorf("errors %q, want %q", errs, want)
	}
}

// TestStatusPermissionsByGate asks for permissions only from 1.36 on, and unless the gate is off.
func TestStatusPermissionsByGate(t *testing.T) {
	is, old := statusWith("a", "d1"), &resourcev1.ResourceClaim{}
	for _, c := range []struct {
		minor int
		gate  string
		want  int
	}{
		{35, "", 0}, {36, "", 2}, {37, "", 2}, {37, "DRAResourceClaimGranularStatusAuthorization=false", 0},
	} {
		gates, err := features.Parse([]string{c.gate}, release.Of(c.minor))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := asked(gates, &request.User{Name: "plain"}, is, old); len(got) != c.want {
			t.Errorf("1.%d %s: asks for %q", c.minor, c.gate, got)
		}
	}
}

// TestStatusWithoutRequest refuses a change if it is not known what the request is.
func TestStatusWithoutRequest(t *testing.T) {
	ctx := request.WithUser(context.Background(), &request.User{Name: "plain"})
	errs := resourceClaim(features.Gates{}).Strategy.ValidatePermissions(ctx, statusWith("a", "d1"), &resourcev1.ResourceClaim{},
		func(*request.Info) error { return nil })
	const unknown = ": Internal error: cannot build authorizer attributes: no RequestInfo found in the context"
	if len(errs) != 2 || errs[0].Error() != "status.allocation"+unknown || errs[1].Error() != "status.devices"+unknown {
		t.Errorf("got %v", errs)
	}
}
