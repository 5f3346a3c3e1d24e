package core

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// gatedPod has a field of each gate that is off by default.
func gatedPod() *corev1.PodSpec {
	files := func() []corev1.KeyToPath { return []corev1.KeyToPath{{Key: "k", Path: "p", User: new(int64(5))}} }
	return &corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: new(int32(0o700))}}},
			{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: "s", DefaultUser: new(int64(5)), Items: files()}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultUser: new(int64(5)), Items: files()}}},
			{Name: "d", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultUser: new(int64(5)),
				Items: []corev1.DownwardAPIVolumeFile{{Path: "p", User: new(int64(5))}}}}},
			{Name: "p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				DefaultUser: new(int64(5)),
				Sources: []corev1.VolumeProjection{
					{Secret: &corev1.SecretProjection{Items: files()}}, {ConfigMap: &corev1.ConfigMapProjection{Items: files()}},
					{DownwardAPI: &corev1.DownwardAPIProjection{
						Items: []corev1.DownwardAPIVolumeFile{{Path: "p", User: new(int64(5))}}}},
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{User: new(int64(5))}},
					{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{User: new(int64(5))}},
					{PodCertificate: &corev1.PodCertificateProjection{User: new(int64(5))}},
				}}}},
		},
		Containers: []corev1.Container{{
			Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "e", BindMountOptions: []string{"noexec"}}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Protocol: new(corev1.HTTPProtocolHTTP2)}}},
			StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				GRPC: &corev1.GRPCAction{Mode: new(corev1.GRPCProbeModeTLS)}}},
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
				HTTPGet: &corev1.HTTPGetAction{Protocol: new(corev1.HTTPProtocolHTTP1)}}},
		}},
		EvictionResponders: []corev1.EvictionResponder{{Name: "example.com/a", Priority: new(int32(5000))}},
		SchedulingGroup:    &corev1.PodSchedulingGroup{PodGroupName: new("g")},
	}
}

// TestFieldsOfGates drops the fields of gates that are off, unless the object had them before.
func TestFieldsOfGates(t *testing.T) {
	dropped := corev1.PodTemplateSpec{Spec: *gatedPod()}
	dropped.Annotations = map[string]string{"pod.beta.kubernetes.io/init-containers": "[]", "a": "b"}
	defaultGates.DropNew(&dropped)
	if len(dropped.Annotations) != 1 {
		t.Errorf("annotations are %v", dropped.Annotations)
	}
	s := &dropped.Spec
	if s.EvictionResponders != nil || s.SchedulingGroup != nil || s.Volumes[0].EmptyDir.Mode != nil {
		t.Errorf("fields of the pod are kept: %+v", s)
	}
	if c := &s.Containers[0]; c.VolumeMounts[0].BindMountOptions != nil || c.LivenessProbe.HTTPGet.Protocol != nil ||
		c.StartupProbe.GRPC.Mode != nil || c.Lifecycle.PreStop.HTTPGet.Protocol != nil {
		t.Errorf("fields of the container are kept: %+v", c)
	}
	eachFileOwner(s, func(user **int64) {
		if *user != nil {
			t.Error("the owner of a file is kept")
		}
	})
	kept := corev1.PodTemplateSpec{Spec: *gatedPod()}
	defaultGates.Drop(&kept, &corev1.PodTemplateSpec{Spec: *gatedPod()})
	if !reflect.DeepEqual(&kept.Spec, gatedPod()) {
		t.Errorf("an object loses what it had: %+v", kept.Spec)
	}
	on := NewPodGates(features.All())
	on.DropNew(&kept)
	if !reflect.DeepEqual(&kept.Spec, gatedPod()) {
		t.Errorf("fields of gates that are on are dropped: %+v", kept.Spec)
	}
}

// TestRulesOfGates validates specs with and without gates, and after an object that had the same.
func TestRulesOfGates(t *testing.T) {
	on := NewPodGates(features.All())
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		want   string // the error with gates that have their defaults
	}{
		"comparing toleration": {func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpGt, Value: "5"}}
		}, `spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"`},
		"users in the host's network": {func(s *corev1.PodSpec) { s.HostNetwork, s.HostUsers = true, new(false) },
			"spec.hostNetwork: Forbidden: when `hostUsers` is false"},
		"SELinux": {func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxChangePolicy = new(corev1.SELinuxChangePolicyMountOption)
		}, ""},
	} {
		spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		DefaultPodSpec(spec)
		c.change(spec)
		validate := func(g *PodGates, old *corev1.PodSpec) []string {
			errs := validatePodSpec(spec, g.rules.keeping(old, nil), "p", true, field.NewPath("spec"))
			return slices.Collect(func(yield func(string) bool) {
				for _, err := range errs {
					yield(err.Error())
				}
			})
		}
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		if got := validate(&defaultGates, nil); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if got := validate(&on, nil); len(got) > 0 {
			t.Errorf("%s with all gates: got %q", name, got)
		}
		if got := validate(&defaultGates, spec); len(got) > 0 {
			t.Errorf("%s that was there before: got %q", name, got)
		}
	}
}

// TestRatchets validates what older objects may have.
func TestRatchets(t *testing.T) {
	spec := &corev1.PodSpec{
		HostNetwork: true,
		SecurityContext: &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"},
			{Name: "net/ipv4/tcp_syncookies", Value: "1"}, {Name: "kernel.msgmax", Value: "1"}}},
		Containers: []corev1.Container{{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_ADMIN"}}}}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}}},
	}
	DefaultPodSpec(spec)
	if errs := validatePodSpec(spec, podRules{}, "p", true, field.NewPath("spec")); len(errs) != 4 {
		t.Errorf("got %v, want 4 errors", errs)
	}
	if errs := validatePodSpec(spec, podRules{}.keeping(spec, nil), "p", true, field.NewPath("spec")); len(errs) > 0 {
		t.Errorf("got %v for an update", errs)
	}
}

// TestCompletePodResources sets the resources of pods as wholes from those of their containers.
func TestCompletePodResources(t *testing.T) {
	for name, c := range map[string]struct {
		pod, want  *corev1.ResourceRequirements
		containers []corev1.ResourceRequirements
	}{
		"none": {nil, nil, []corev1.ResourceRequirements{{Limits: resources("cpu", "1")}}},
		"request from limit": {&corev1.ResourceRequirements{Limits: resources("cpu", "2")},
			&corev1.ResourceRequirements{Limits: resources("cpu", "2"), Requests: resources("cpu", "2")}, []corev1.ResourceRequirements{{}}},
		"limits of all containers": {&corev1.ResourceRequirements{Requests: resources("cpu", "1")},
			&corev1.ResourceRequirements{Limits: resources("cpu", "3"), Requests: resources("cpu", "1")},
			[]corev1.ResourceRequirements{{Limits: resources("cpu", "1")}, {Limits: resources("cpu", "2")}}},
		"a limit below the request": {&corev1.ResourceRequirements{Requests: resources("cpu", "5")},
			&corev1.ResourceRequirements{Limits: resources("cpu", "5"), Requests: resources("cpu", "5")},
			[]corev1.ResourceRequirements{{Limits: resources("cpu", "1")}}},
		"limits of some containers": {&corev1.ResourceRequirements{Requests: resources("cpu", "1")},
			&corev1.ResourceRequirements{Requests: resources("cpu", "1")},
			[]corev1.ResourceRequirements{{Limits: resources("cpu", "1")}, {}}},
	} {
		s := &corev1.PodSpec{Resources: c.pod}
		for _, r := range c.containers {
			s.Containers = append(s.Containers, corev1.Container{Resources: r})
		}
		if defaultGates.completePodResources(s); !equality.Semantic.DeepEqual(s.Resources, c.want) {
			t.Errorf("%s: got %v, want %v", name, s.Resources, c.want)
		}
	}
}

func TestResponders(t *testing.T) {
	responder := func(name string, priority int32) corev1.EvictionResponder {
		return corev1.EvictionResponder{Name: name, Priority: &priority}
	}
	for _, c := range []struct {
		list, old []corev1.EvictionResponder
		want      []string
	}{
		{list: []corev1.EvictionResponder{responder("example.com/a", 1000), responder("example.com/b", 100_000)}},
		{list: []corev1.EvictionResponder{{}}, want: []string{"r[0].name: Required value", "r[0].priority: Required value"}},
		{list: []corev1.EvictionResponder{responder("a", 5)}, want: []string{
			`r[0].name: Invalid value: "a": must include a prefix (e.g. 'example.com/key')`,
			"r[0].priority: Invalid value: 5: priorities 0-999 are reserved for responders with *.k8s.io suffix"}},
		{list: []corev1.EvictionResponder{responder("x.k8s.io/a", 100_001)}, want: []string{
			`r[0].name: Invalid value: "x.k8s.io/a": domain names *.k8s.io, *.kubernetes.io are reserved`,
			"r[0].priority: Invalid value: 100001: must be less than or equal to 100000"}},
		{list: []corev1.EvictionResponder{responder("a", 5), responder("example.com/b", 1000)},
			old: []corev1.EvictionResponder{responder("a", 5)}},
	} {
		var got []string
		for _, err := range validateResponders(c.list, c.old, field.NewPath("r")) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
