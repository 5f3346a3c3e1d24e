package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestHostPortsInHostNetwork: the host port of a pod has to be the container port, in a template it may be missing too.
func TestHostPortsInHostNetwork(t *testing.T) {
	for _, c := range []struct {
		pod   bool
		port  int32
		valid bool
	}{{true, 80, true}, {true, 0, false}, {true, 81, false}, {false, 80, true}, {false, 0, true}, {false, 81, false}} {
		spec := &corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: c.port}},
		}}}
		p := &podValidator{spec: spec, pod: c.pod}
		if errs := p.validateHostPorts(field.NewPath("spec")); (len(errs) == 0) != c.valid {
			t.Errorf("%+v: %v", c, errs)
		}
	}
}
