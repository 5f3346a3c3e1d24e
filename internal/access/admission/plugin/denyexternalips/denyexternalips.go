// Package denyexternalips refuses Services with new external IPs (DenyServiceExternalIPs). It is off by default. With
// external IPs, a user who may create Services can intercept the traffic of others.
package denyexternalips

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

// services is the resource of the plug-in.
var services = corev1.Resource("services")

// Plugin returns the plug-in. A Service may keep the external IPs that it has.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "DenyServiceExternalIPs", Validate: validate}
}

func validate(_ context.Context, a *admission.Attributes) error {
	if !a.Is(services, admission.Create, admission.Update) {
		return nil
	}
	var had []string
	if old, ok := a.Old.(*corev1.Service); ok {
		had = old.Spec.ExternalIPs
	}
	for _, ip := range a.Object.(*corev1.Service).Spec.ExternalIPs {
		if !slices.Contains(had, ip) {
			//nolint:staticcheck // kube-apiserver's text
			return a.Forbiddenf("Use of external IPs is denied by admission control")
		}
	}
	return nil
}
