package bootstrap

import (
	"context"
	"errors"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	endpoints      = corev1.SchemeGroupVersion.WithResource("endpoints")
	endpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
)

// errNoServers means that a Reconciler returned no server, not even this one.
var errNoServers = errors.New(
	"no API server IP addresses were listed in storage, refusing to erase all endpoints for the kubernetes Service")

// reconcileEndpoints sets the endpoints of the Service to the addresses of the current
// servers.
func (k *Keeper) reconcileEndpoints(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Endpoints == nil || k.left {
		return
	}
	addresses, err := k.Endpoints.Servers(ctx)
	if err == nil && len(addresses) == 0 {
		err = errNoServers
	}
	if err == nil {
		err = k.setEndpoints(ctx, addresses)
	}
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("unable to sync kubernetes service", "error", err)
	}
}

// Leave removes this server from the endpoints permanently, so that clients use the other servers, and deletes the
// lease by which peers find it.
func (k *Keeper) Leave(ctx context.Context) error {
	return errors.Join(k.leaveEndpoints(ctx), k.leaveLease(ctx))
}

func (k *Keeper) leaveEndpoints(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Endpoints == nil || k.left {
		return nil
	}
	k.left = true
	addresses, err := k.Endpoints.Leave(ctx)
	if err != nil {
		return err
	}
	_, found, err := stored[*corev1.Endpoints](ctx, k, endpoints, corev1.NamespaceDefault, serviceName)
	if err != nil || !found {
		return err
	}
	return k.setEndpoints(ctx, addresses)
}

func (k *Keeper) setEndpoints(ctx context.Context, addresses []string) error {
	slices.Sort(addresses)
	if err := k.setLegacyEndpoints(ctx, addresses); err != nil {
		return err
	}
	return k.setSlice(ctx, addresses)
}

// setLegacyEndpoints writes the Endpoints object. Its label prevents mirroring, because
// setSlice writes the EndpointSlice.
func (k *Keeper) setLegacyEndpoints(ctx context.Context, addresses []string) error {
	var subsets []corev1.EndpointSubset
	if len(addresses) > 0 {
		subsets = []corev1.EndpointSubset{
			{Ports: []corev1.EndpointPort{{Name: portName, Port: int32(k.Port), Protocol: corev1.ProtocolTCP}}}}
		for _, a := range addresses {
			subsets[0].Addresses = append(subsets[0].Addresses, corev1.EndpointAddress{IP: a})
		}
	}
	current, found, err := stored[*corev1.Endpoints](ctx, k, endpoints, corev1.NamespaceDefault, serviceName)
	if err != nil {
		return err
	}
	if !found {
		e := &corev1.Endpoints{Subsets: subsets}
		e.Namespace, e.Name = corev1.NamespaceDefault, serviceName
		e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
		return k.create(ctx, endpoints, e, manager)
	}
	if current.Labels[discoveryv1.LabelSkipMirror] == "true" && sameAddresses(current.Subsets, subsets) {
		return nil
	}
	return k.update(ctx, endpoints, corev1.NamespaceDefault, serviceName, manager, func(obj registry.Object) error {
		e := obj.(*corev1.Endpoints)
		e.Subsets = subsets
		metav1.SetMetaDataLabel(&e.ObjectMeta, discoveryv1.LabelSkipMirror, "true")
		return nil
	})
}

// sameAddresses compares only addresses. Servers of one cluster may have different ports, and
// would otherwise overwrite each other's endpoints again and again.
func sameAddresses(a, b []corev1.EndpointSubset) bool {
	if len(a) != len(b) || len(a) > 1 {
		return false
	}
	return len(a) == 0 || equality.Semantic.DeepEqual(a[0].Addresses, b[0].Addresses)
}

func (k *Keeper) setSlice(ctx context.Context, addresses []string) error {
	wanted := k.slice(addresses)
	current, found, err := stored[*discoveryv1.EndpointSlice](ctx, k, endpointSlices, corev1.NamespaceDefault, serviceName)
	if err != nil {
		return err
	}
	if found && current.AddressType != wanted.AddressType {
		if err := k.delete(ctx, endpointSlices, corev1.NamespaceDefault, serviceName); err != nil {
			return err
		}
		found = false
	}
	if !found {
		return k.create(ctx, endpointSlices, wanted, manager)
	}
	if equality.Semantic.DeepEqual(current.Endpoints, wanted.Endpoints) &&
		equality.Semantic.DeepEqual(current.Labels, wanted.Labels) {
		return nil
	}
	return k.update(ctx, endpointSlices, corev1.NamespaceDefault, serviceName, manager, func(obj registry.Object) error {
		s := obj.(*discoveryv1.EndpointSlice)
		s.Endpoints, s.Ports, s.Labels = wanted.Endpoints, wanted.Ports, wanted.Labels
		return nil
	})
}

// slice returns the EndpointSlice for the servers. If there are addresses of both families,
// the slice has the IPv4 addresses.
func (k *Keeper) slice(addresses []string) *discoveryv1.EndpointSlice {
	isIPv6 := func(a string) bool { return net.ParseIP(a).To4() == nil }
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	if len(addresses) > 0 && !slices.ContainsFunc(addresses, func(a string) bool { return !isIPv6(a) }) {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	s.Namespace, s.Name = corev1.NamespaceDefault, serviceName
	s.Labels = map[string]string{discoveryv1.LabelServiceName: serviceName}
	for _, a := range addresses {
		if isIPv6(a) == (s.AddressType == discoveryv1.AddressTypeIPv6) {
			s.Endpoints = append(s.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
		}
	}
	if len(addresses) > 0 {
		s.Ports = []discoveryv1.EndpointPort{
			{Name: new(portName), Port: new(int32(k.Port)), Protocol: new(corev1.ProtocolTCP)}}
	}
	return s
}
