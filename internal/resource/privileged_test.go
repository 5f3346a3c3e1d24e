package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// TestForbidPrivileged sets privileged containers in the pod spec of each kind that has one.
func TestForbidPrivileged(t *testing.T) {
	kinds := Kinds(features.Gates{})
	ForbidPrivileged(kinds)
	var found []string
	for _, k := range kinds {
		if !hasPodSpec(k) {
			continue
		}
		found = append(found, k.Resource)
		obj := k.Version(k.Storage.Version).New()
		if r, ok := obj.(*corev1.ReplicationController); ok {
			r.Spec.Template = &corev1.PodTemplateSpec{}
		}
		spec, _ := podSpecOf(obj)
		c := corev1.Container{SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}
		spec.Containers, spec.InitContainers = []corev1.Container{c}, []corev1.Container{c}
		spec.SecurityContext = &corev1.PodSecurityContext{
			WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)},
		}
		expect := func(what string, text string) {
			if strings.Count(text, "Forbidden: disallowed by cluster policy") != 2 ||
				!strings.Contains(text, "spec: Forbidden: hostProcess containers are disallowed by cluster policy") {
				t.Errorf("%s of %s: %s", what, k.Resource, text)
			}
		}
		expect("create", k.Strategy.ValidateCreate(t.Context(), obj, nil).ToAggregate().Error())
		expect("update", k.Strategy.ValidateUpdate(t.Context(), obj, obj.DeepCopyObject().(registry.Object)).ToAggregate().Error())
	}
	const want = "pods podtemplates replicationcontrollers daemonsets deployments replicasets statefulsets cronjobs jobs"
	if got := strings.Join(found, " "); got != want {
		t.Errorf("kinds with pods are %s, want %s", got, want)
	}
}
