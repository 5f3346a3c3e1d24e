package bootstrap

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	// serviceName is the name of the API's Service, of its endpoints, and of the default
	// ServiceCIDR.
	serviceName = "kubernetes"
	servicePort = 443
	portName    = "https"

	// rangeManager is the field manager of the ServiceCIDR's status.
	rangeManager = "kubernetes-service-cidr-controller"
)

var (
	services     = corev1.SchemeGroupVersion.WithResource("services")
	serviceCIDRs = networkingv1.SchemeGroupVersion.WithResource("servicecidrs")
)

// ensureServiceCIDR creates the default ServiceCIDR and sets its condition Ready. An existing ServiceCIDR with
// other ranges is changed only if this server adds the range of the second IP family.
func (k *Keeper) ensureServiceCIDR(ctx context.Context) error {
	var wanted []string
	for _, p := range k.Services {
		wanted = append(wanted, p.String())
	}
	current, found, err := stored[*networkingv1.ServiceCIDR](ctx, k, serviceCIDRs, "", serviceName)
	if err != nil {
		return err
	}
	if !found {
		current = &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: wanted}}
		current.Name = serviceName
		if err := k.create(ctx, serviceCIDRs, current.DeepCopy(), manager); err != nil {
			return err
		}
	}
	if len(wanted) == 2 && len(current.Spec.CIDRs) == 1 && wanted[0] == current.Spec.CIDRs[0] {
		current.Spec.CIDRs = wanted
		err := k.update(ctx, serviceCIDRs, "", serviceName, manager, func(obj registry.Object) error {
			obj.(*networkingv1.ServiceCIDR).Spec.CIDRs = wanted
			return nil
		})
		if err != nil {
			return err
		}
	}
	if current.DeletionTimestamp != nil || !slices.Equal(current.Spec.CIDRs, wanted) || hasReadyCondition(current) {
		return nil
	}
	return k.setServiceCIDRReady(ctx)
}

// hasReadyCondition reports whether the ServiceCIDR has a condition Ready.
func hasReadyCondition(c *networkingv1.ServiceCIDR) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == networkingv1.ServiceCIDRConditionReady && c.Status != metav1.ConditionUnknown
	})
}

func (k *Keeper) setServiceCIDRReady(ctx context.Context) error {
	document, err := json.Marshal(map[string]any{
		"apiVersion": networkingv1.SchemeGroupVersion.String(), "kind": "ServiceCIDR",
		"metadata": map[string]string{"name": serviceName},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": networkingv1.ServiceCIDRConditionReady, "status": metav1.ConditionTrue,
			"message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": metav1.NewTime(k.Now()),
		}}},
	})
	if err != nil {
		return err
	}
	return k.applyStatus(ctx, serviceCIDRs, serviceName, rangeManager, document)
}

// ensureServiceCIDRAndService creates the ServiceCIDR and then the Service, which needs an address in the ranges
// of the ServiceCIDR.
func (k *Keeper) ensureServiceCIDRAndService(ctx context.Context) error {
	if err := k.ensureServiceCIDR(ctx); err != nil {
		return err
	}
	return k.ensureServiceOnce(ctx)
}

// ensureServiceOnce creates the Service. If another server is creating it at the same moment, the address of the
// Service is allocated already, and ensureServiceOnce tries again for a short time. If that address is never used,
// servicerepair releases it later, and the next round creates the Service.
func (k *Keeper) ensureServiceOnce(ctx context.Context) error {
	const tries, pause = 5, 100 * time.Millisecond
	for try := 1; ; try++ {
		err := k.ensureService(ctx)
		if !kerrors.IsInvalid(err) {
			return err
		}
		if try == tries {
			k.Log.Warn("cannot create the service kubernetes; will try again", "error", err)
			return nil
		}
		if !workers.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
}

// ensureService creates the Service kubernetes, through which programs in the cluster reach
// the API. An existing one is not changed.
func (k *Keeper) ensureService(ctx context.Context) error {
	_, found, err := stored[*corev1.Service](ctx, k, services, corev1.NamespaceDefault, serviceName)
	if err != nil || found {
		return err
	}
	ip := k.Services[0].Addr().Next()
	s := &corev1.Service{Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{
			{Name: portName, Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(int32(k.Port))}},
		ClusterIP: ip.String(), IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
		SessionAffinity: corev1.ServiceAffinityNone, Type: corev1.ServiceTypeClusterIP,
	}}
	s.Namespace, s.Name = corev1.NamespaceDefault, serviceName
	s.Labels = map[string]string{"provider": "kubernetes", "component": "apiserver"}
	if k.NodePort > 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = int32(k.NodePort)
	}
	err = k.create(ctx, services, s, manager)
	if err == nil {
		return nil
	}
	// Another server that starts at the same time may have created the Service. Then the error is
	// that the address is allocated, not that the name exists.
	if _, found, readErr := stored[*corev1.Service](ctx, k, services, corev1.NamespaceDefault,
		serviceName); readErr == nil && found {
		return nil
	}
	return err
}
