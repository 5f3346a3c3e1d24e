package core

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// gatesOf returns the gates of a minor.
func gatesOf(t *testing.T, minor int, set ...string) features.Gates {
	t.Helper()
	gates, err := features.Parse(set, release.Of(minor))
	if err != nil {
		t.Fatal(err)
	}
	return gates
}

// TestImageVolume drops the volumes with images and their mounts in 1.34.
func TestImageVolume(t *testing.T) {
	spec := func() corev1.PodSpec {
		mounts := []corev1.VolumeMount{{Name: "image"}, {Name: "empty"}}
		return corev1.PodSpec{
			Volumes: []corev1.Volume{
				{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "i"}}},
				{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Containers: []corev1.Container{{Name: "c", VolumeMounts: mounts}},
		}
	}
	off, on := NewPodGates(gatesOf(t, 34)), NewPodGates(gatesOf(t, 35))
	p := &corev1.Pod{Spec: spec()}
	off.dropNew(p)
	if s := &p.Spec; len(s.Volumes) != 1 || s.Volumes[0].Name != "empty" || len(s.Containers[0].VolumeMounts) != 1 ||
		s.Containers[0].VolumeMounts[0].Name != "empty" {
		t.Errorf("1.34 leaves %+v", p.Spec)
	}
	for name, drop := range map[string]func(p *corev1.Pod){
		"1.35":                   on.dropNew,
		"an object that had one": func(p *corev1.Pod) { off.drop(p, &corev1.Pod{Spec: spec()}) },
	} {
		p := &corev1.Pod{Spec: spec()}
		if drop(p); !reflect.DeepEqual(p.Spec, spec()) {
			t.Errorf("%s: the pod has %+v", name, p.Spec)
		}
	}
}

// TestAmbiguousAddresses validates addresses with a leading zero, which StrictIPCIDRValidation refuses since 1.36.
func TestAmbiguousAddresses(t *testing.T) {
	const address = "010.1.1.1"
	pod := &corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}}, DNSPolicy: corev1.DNSClusterFirst,
		HostAliases: []corev1.HostAlias{{IP: address, Hostnames: []string{"a"}}},
		DNSConfig:   &corev1.PodDNSConfig{Nameservers: []string{address}},
	}
	DefaultPodSpec(pod)
	service := &corev1.Service{Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Port: 80}}, ClusterIP: address, ExternalIPs: []string{address},
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"010.0.0.0/8"},
	}}
	defaultService(service)
	inferAddressFields(service)
	endpoints := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: address}}}}}
	for minor, want := range map[int]int{35: 0, 36: 7} {
		gates := gatesOf(t, minor)
		pods, rules := NewPodGates(gates), NewAddressRules(gates)
		var errs field.ErrorList
		for _, list := range []field.ErrorList{
			validatePodSpec(pod, pods.rules, "p", true, field.NewPath("spec")),
			rules.validateService(service, nil), rules.validateEndpoints(endpoints, nil),
			rules.validatePodCIDRs([]string{"010.0.0.0/8"}, field.NewPath("spec", "podCIDRs")),
		} {
			errs = append(errs, list...)
		}
		if len(errs) != want {
			t.Errorf("1.%d: %q", minor, texts(errs))
		}
	}
}

// TestNominatedNodes binds a pod that has a nominated node, and nominates one for a pod that has a node. Since 1.35 the first
// ends the nomination, and the second is refused; the labels of a Binding are copied, too.
func TestNominatedNodes(t *testing.T) {
	const refused = "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
	for minor, on := range map[int]bool{34: false, 35: true} {
		g := NewPodGates(gatesOf(t, minor))
		p := &corev1.Pod{Status: corev1.PodStatus{NominatedNodeName: "a"}}
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
		b.Target.Name = "n"
		if err := g.assign(p, b, false); err != nil {
			t.Fatal(err)
		}
		if (p.Status.NominatedNodeName == "") != on || (len(p.Labels) > 0) != on || p.Spec.NodeName != "n" {
			t.Errorf("1.%d: after the binding: %+v %+v", minor, p.Labels, p.Status)
		}
		next := p.DeepCopy()
		next.Status.NominatedNodeName = "b"
		if got := slices.Contains(texts(g.validatePodStatus(next, p)), refused); got != on {
			t.Errorf("1.%d: a nomination of a pod with a node is refused: %v", minor, got)
		}
		if got := texts(g.validatePodStatus(next, next)); slices.Contains(got, refused) {
			t.Errorf("1.%d: a nomination that was there is refused", minor)
		}
	}
}

// TestResizeOfInitContainers changes the CPU of an init container that is not a sidecar.
func TestResizeOfInitContainers(t *testing.T) {
	pod := func(cpu string) *corev1.Pod {
		c := corev1.Container{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}
		init := *c.DeepCopy()
		init.Name, init.Resources.Requests = "init", corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		if cpu == "0" {
			init.Resources.Requests = nil
		}
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{init}, Containers: []corev1.Container{c}}}
		DefaultPodSpec(&p.Spec)
		return p
	}
	const immutable = "spec: Forbidden: resources for non-sidecar init containers are immutable"
	for _, c := range []struct {
		minor int
		cpu   string
		want  []string
	}{
		{35, "2", []string{immutable}}, {36, "2", nil}, {35, "0", []string{immutable}},
		{36, "0", []string{"spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed"}},
		{35, "1", nil},
	} {
		g := NewPodGates(gatesOf(t, c.minor))
		if got := texts(g.validateResize(pod(c.cpu), pod("1"))); !slices.Equal(got, c.want) {
			t.Errorf("1.%d, from 1 to %s: %q, want %q", c.minor, c.cpu, got, c.want)
		}
	}
}

// TestClassOfEmptyResources gives a pod empty resources of its own, which decided its class before 1.37.
func TestClassOfEmptyResources(t *testing.T) {
	spec := &corev1.PodSpec{Resources: &corev1.ResourceRequirements{}, Containers: []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}
	for minor, want := range map[int]corev1.PodQOSClass{36: corev1.PodQOSBestEffort, 37: corev1.PodQOSBurstable} {
		g := NewPodGates(gatesOf(t, minor))
		if got := g.qosClass(spec); got != want {
			t.Errorf("1.%d: %s", minor, got)
		}
	}
}

// TestMutablePVNodeAffinity changes the node affinity of a volume.
func TestMutablePVNodeAffinity(t *testing.T) {
	volume := func(value string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "k", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}}}}
	}
	for set, want := range map[string]bool{"": true, "MutablePVNodeAffinity=true": false} {
		k := persistentVolumes(gatesOf(t, 37, set))
		refused := slices.ContainsFunc(k.Strategy.ValidateUpdate(t.Context(), volume("a"), volume("b")),
			func(err *field.Error) bool { return err.Field == "nodeAffinity" })
		if refused != want {
			t.Errorf("%q: refused: %v", set, refused)
		}
	}
}

// TestRelaxedServiceNameValidation names a Service with a digit in front.
func TestRelaxedServiceNameValidation(t *testing.T) {
	for minor, want := range map[int]int{35: 1, 36: 0} {
		if got := services(gatesOf(t, minor)).Metadata.ValidateName("1s", false); len(got) != want {
			t.Errorf("1.%d: %q", minor, got)
		}
	}
}

// TestGatesOfStreams: a GET that runs a command needs the permission to create since 1.35, and kubelets that take WebSockets
// get them unchanged since 1.36.
func TestGatesOfStreams(t *testing.T) {
	kubelet := &registry.Kubelet{Features: []string{websocketsOfKubelet}}
	for minor, want := range map[int][2]bool{34: {false, false}, 35: {true, false}, 36: {true, true}} {
		g := NewPodGates(gatesOf(t, minor))
		for _, s := range []registry.Subresource{g.podAttach(), g.podExec(), g.podPortForward()} {
			if s.Connect.NeedsCreate != want[0] {
				t.Errorf("1.%d: %s needs create: %v", minor, s.Name, s.Connect.NeedsCreate)
			}
		}
		if got := g.takesWebSockets(kubelet); got != want[1] || g.takesWebSockets(&registry.Kubelet{}) {
			t.Errorf("1.%d: the kubelet gets WebSockets: %v", minor, got)
		}
	}
}

// TestResizeDrops drops the fields of gates from a resize also if it has another number of containers, which validation refuses.
func TestResizeDrops(t *testing.T) {
	gates := NewPodGates(gatesOf(t, 37, "ContainerStopSignals=false"))
	signal := corev1.SIGTERM
	old := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	p := old.DeepCopy()
	p.Spec.InitContainers = []corev1.Container{{Lifecycle: &corev1.Lifecycle{StopSignal: &signal}}}
	if gates.prepareResize(p, old); len(p.Spec.InitContainers) != 1 || p.Spec.InitContainers[0].Lifecycle != nil {
		t.Errorf("%+v", p.Spec.InitContainers)
	}
}

// TestEnvFromNames allows names that end with a dash, as kube-apiserver does.
func TestEnvFromNames(t *testing.T) {
	for name, valid := range map[string]bool{"x": true, "x-": true, "x.-": true, "X": false, "-x": false, "": false} {
		sources := []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}},
		}
		if errs := validateEnvFrom(sources, field.NewPath("envFrom")); (len(errs) == 0) != valid {
			t.Errorf("%q: %v", name, errs)
		}
	}
}

// TestGatesRemoved reports a new gate once.
func TestGatesRemoved(t *testing.T) {
	is := []corev1.PodSchedulingGate{{Name: "a"}, {Name: "had"}, {Name: "a"}, {Name: "b"}}
	errs := validateGatesRemoved(is, []corev1.PodSchedulingGate{{Name: "had"}, {Name: "gone"}}, field.NewPath("gates"))
	var got []string
	for _, err := range errs {
		got = append(got, err.Field)
	}
	if want := []string{"gates[2].name", "gates[3].name"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
