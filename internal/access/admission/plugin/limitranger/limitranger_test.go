package limitranger

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// list parses "cpu=1 memory=5Mi".
func list(text string) corev1.ResourceList {
	var out corev1.ResourceList
	for _, part := range strings.Fields(text) {
		name, value, _ := strings.Cut(part, "=")
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return out
}

// shown is the opposite of list.
func shown(l corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, " ")
}

func limitRange(name string, items ...corev1.LimitRangeItem) registry.Object {
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}, Spec: corev1.LimitRangeSpec{Limits: items},
	}
}

func container(name, requests, limits string) corev1.Container {
	return corev1.Container{
		Name: name, Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)},
	}
}

func sidecar(requests, limits string) corev1.Container {
	c := container("sidecar", requests, limits)
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

func newPod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}, Spec: corev1.PodSpec{Containers: containers},
	}
}

func in(ranges ...registry.Object) admissiontest.Objects {
	return admissiontest.Objects{limitRanges: ranges}
}

func TestDefaults(t *testing.T) {
	of := func(limits, requests string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{
			Type: corev1.LimitTypeContainer, Default: list(limits), DefaultRequest: list(requests),
		}
	}
	pod := newPod(container("a", "", ""), container("b", "cpu=1", "memory=9Mi"))
	pod.Spec.InitContainers = []corev1.Container{container("i", "memory=1Mi", "")}
	p := Plugin(in(
		limitRange("1", of("cpu=2 memory=4Mi", "cpu=1"), of("cpu=3", "memory=2Mi"),
			corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu=1")}),
		limitRange("2", of("cpu=9", "")),
	))
	// The second call changes nothing.
	for range 2 {
		if err := p.Mutate(t.Context(), admissiontest.Creation(pods, pod)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			got = append(got, c.Name+": "+shown(c.Resources.Requests)+" < "+shown(c.Resources.Limits))
		}
		want := []string{
			"a: cpu=1 memory=2Mi < cpu=3 memory=4Mi", "b: cpu=1 memory=2Mi < cpu=3 memory=9Mi",
			"i: cpu=1 memory=1Mi < cpu=3 memory=4Mi",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		const said = "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; " +
			"memory request for container b; cpu limit for container b; cpu request for init container i; " +
			"cpu, memory limit for init container i"
		if got := pod.Annotations[annotation]; got != said {
			t.Errorf("the annotation is %q", got)
		}
	}
	bare := newPod(container("c", "", ""))
	err := Plugin(in(limitRange("other", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Default: list("cpu=1")}))).
		Mutate(t.Context(), admissiontest.Creation(pods, bare))
	if err != nil || bare.Annotations != nil || bare.Spec.Containers[0].Resources.Limits != nil {
		t.Errorf("a range without defaults of containers: %v, %+v", err, bare)
	}
}

func TestBoundsOfPods(t *testing.T) {
	const forbidden = `pods "p" is forbidden: `
	containers, whole := corev1.LimitTypeContainer, corev1.LimitTypePod
	item := func(of corev1.LimitType, lo, hi, ratio string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: of, Min: list(lo), Max: list(hi), MaxLimitRequestRatio: list(ratio)}
	}
	for name, c := range map[string]struct {
		item corev1.LimitRangeItem
		pod  *corev1.Pod
		init []corev1.Container
		own  *corev1.ResourceRequirements
		want string
	}{
		"fits": {item: item(containers, "cpu=1", "cpu=2", "cpu=2"), pod: newPod(container("a", "cpu=1", "cpu=2"))},
		"no request": {item: item(containers, "cpu=1", "", ""), pod: newPod(container("a", "", "")),
			want: "minimum cpu usage per Container is 1.  No request is specified"},
		"low request": {item: item(containers, "cpu=1", "", ""), pod: newPod(container("a", "cpu=500m", "cpu=2")),
			want: "minimum cpu usage per Container is 1, but request is 500m"},
		"low limit": {item: item(containers, "cpu=1", "", ""), pod: newPod(container("a", "cpu=1", "cpu=999m")),
			want: "minimum cpu usage per Container is 1, but limit is 999m"},
		"no limit": {item: item(containers, "", "memory=1Gi", ""), pod: newPod(container("a", "memory=1Gi", "")),
			want: "maximum memory usage per Container is 1Gi.  No limit is specified"},
		"high limit": {item: item(containers, "", "cpu=1", ""), pod: newPod(container("a", "cpu=2", "cpu=1001m")),
			want: "maximum cpu usage per Container is 1, but limit is 1001m"},
		"high request": {item: item(containers, "", "cpu=1", ""), pod: newPod(container("a", "cpu=2", "cpu=1")),
			want: "maximum cpu usage per Container is 1, but request is 2"},
		"init container": {item: item(containers, "", "cpu=1", ""), pod: newPod(container("a", "", "cpu=1")),
			init: []corev1.Container{container("i", "", "cpu=3")},
			want: "maximum cpu usage per Container is 1, but limit is 3"},
		"several": {item: item(containers, "cpu=1 memory=1Mi", "cpu=2", ""), pod: newPod(container("a", "", "cpu=3")),
			want: "[minimum cpu usage per Container is 1.  No request is specified, " +
				"minimum memory usage per Container is 1Mi.  No request is specified, " +
				"maximum cpu usage per Container is 2, but limit is 3]"},
		"repeated": {item: item(containers, "cpu=1", "", ""), pod: newPod(container("a", "", ""), container("b", "", "")),
			want: "minimum cpu usage per Container is 1.  No request is specified"},
		"ratio": {item: item(containers, "", "", "cpu=1500m"), pod: newPod(container("a", "cpu=1", "cpu=1501m")),
			want: "cpu max limit to request ratio per Container is 1500m, but provided ratio is 1.501000"},
		"ratio of nothing": {item: item(containers, "", "", "cpu=2"), pod: newPod(container("a", "cpu=0", "cpu=2")),
			want: "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"},
		"ratio without limit": {item: item(containers, "", "", "cpu=2"), pod: newPod(container("a", "cpu=1", "")),
			want: "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"},
		"fractions are rounded up": {
			item: item(containers, "cpu=200u", "", ""), pod: newPod(container("a", "cpu=100u", "cpu=100u")),
		},
		"large": {item: item(containers, "", "memory=9000P", ""), pod: newPod(container("a", "", "memory=9001P")),
			want: "maximum memory usage per Container is 9E, but limit is 9001P"},
		"pod": {item: item(whole, "", "cpu=1", ""), pod: newPod(container("a", "", "cpu=600m"), container("b", "", "cpu=600m")),
			want: "maximum cpu usage per Pod is 1, but limit is 1200m"},
		"pod with a large init container": {item: item(whole, "", "cpu=1", ""), pod: newPod(container("a", "", "cpu=1")),
			init: []corev1.Container{container("i", "", "cpu=2")}, want: "maximum cpu usage per Pod is 1, but limit is 2"},
		"pod with a sidecar": {item: item(whole, "", "cpu=1", ""), pod: newPod(container("a", "", "cpu=1")),
			init: []corev1.Container{sidecar("", "cpu=2")}, want: "maximum cpu usage per Pod is 1, but limit is 3"},
		"pod with resources of its own": {
			item: item(whole, "", "cpu=4 example.com/x=1", ""), pod: newPod(container("a", "", "cpu=1 example.com/x=1")),
			own:  &corev1.ResourceRequirements{Limits: list("cpu=5 example.com/x=7")},
			want: "maximum cpu usage per Pod is 4, but limit is 5",
		},
		"claims": {item: item(corev1.LimitTypePersistentVolumeClaim, "cpu=1", "", ""), pod: newPod(container("a", "", ""))},
	} {
		c.pod.Spec.InitContainers, c.pod.Spec.Resources = c.init, c.own
		if c.want != "" {
			c.want = forbidden + c.want
		}
		p := Plugin(in(limitRange("r", c.item)))
		if err := p.Validate(t.Context(), admissiontest.Creation(pods, c.pod)); message(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestBoundsOfClaims(t *testing.T) {
	p := Plugin(in(limitRange("r",
		corev1.LimitRangeItem{
			Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage=1Gi"), Max: list("storage=5Gi"),
		},
		corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list("storage=9Gi")},
	)))
	for requests, want := range map[string]string{
		"storage=1Gi": "",
		"storage=5Gi": "",
		"storage=1Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
		"storage=6Gi": "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi",
		"": "[minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified, " +
			"maximum storage usage per PersistentVolumeClaim is 5Gi.  No request is specified]",
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n"}}
		claim.Spec.Resources = corev1.VolumeResourceRequirements{Requests: list(requests), Limits: list("storage=100Gi")}
		if want != "" {
			want = `persistentvolumeclaims "c" is forbidden: ` + want
		}
		created, changed := admissiontest.Creation(claims, claim), admissiontest.Change(claims, claim, claim.DeepCopy())
		for _, a := range []*admission.Attributes{created, changed} {
			if err := p.Validate(t.Context(), a); message(err) != want {
				t.Errorf("%v of %q: %v, want %q", a.Operation, requests, err, want)
			}
		}
		changed.Old.SetDeletionTimestamp(&metav1.Time{})
		changed.Subresource = ""
		if err := p.Validate(t.Context(), changed); err != nil {
			t.Errorf("update of a claim that is being deleted: %v", err)
		}
	}
}

// TestUpdatesOfPods checks that an update of a pod is only compared with limits if it uses the subresource resize.
func TestUpdatesOfPods(t *testing.T) {
	p := Plugin(in(limitRange("r", corev1.LimitRangeItem{
		Type: corev1.LimitTypeContainer, Max: list("cpu=1"), Default: list("memory=1Gi"),
	})))
	for subresource, limited := range map[string]bool{
		"": false, "status": false, "resize": true, "ephemeralcontainers": false,
	} {
		pod := newPod(container("a", "", "cpu=2"))
		a := admissiontest.Change(pods, pod, newPod(container("a", "", "cpu=1")))
		a.Subresource = subresource
		if err := p.Mutate(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if got := shown(pod.Spec.Containers[0].Resources.Limits) == "cpu=2 memory=1Gi"; got != limited {
			t.Errorf("%q: defaults were set: %v, want %v", subresource, got, limited)
		}
		if err := p.Validate(t.Context(), a); (err != nil) != limited {
			t.Errorf("%q: %v", subresource, err)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
