package podtolerationrestriction

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func exists(keys ...string) []corev1.Toleration {
	var out []corev1.Toleration
	for _, key := range keys {
		out = append(out, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return out
}

func keys(list []corev1.Toleration) string {
	var out []string
	for _, t := range list {
		out = append(out, strings.TrimSuffix(fmt.Sprint(t.Key, " ", t.Effect), " "))
	}
	return strings.Join(out, ",")
}

func namespace(name, defaults, allowed string) registry.Object {
	out := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for key, value := range map[string]string{defaultAnnotation: defaults, allowedAnnotation: allowed} {
		if value != "unset" {
			out.Annotations[key] = value
		}
	}
	return out
}

const refused = "pod tolerations (possibly merged with namespace default tolerations) conflict with its "

func TestTolerations(t *testing.T) {
	in := admissiontest.Objects{namespaces: {
		namespace("plain", "unset", "unset"), namespace("empty", "", ""),
		namespace("own", `[{"key":"d","operator":"Exists"}]`, `[{"key":"d","operator":"Exists"},{"key":"a","operator":"Exists"}]`),
		namespace("bad", "[", "unset"), namespace("badlist", "", "x"),
	}}
	// The list has spare capacity, so that a plug-in that appends to it in place would change it.
	config := Config{Default: append(make([]corev1.Toleration, 0, 4), exists("c")...), Whitelist: exists("c", "a", "node.kubernetes.io/memory-pressure")}
	const memory = "node.kubernetes.io/memory-pressure NoSchedule"
	for name, c := range map[string]struct {
		config     Config
		in         string
		sent       []corev1.Toleration
		cpu        string
		want       string // on create
		wantUpdate string
		err        string
		errUpdate  string
	}{
		"no configuration":       {in: "plain", sent: exists("x"), want: "x", wantUpdate: "x"},
		"none":                   {in: "plain"},
		"default of the cluster": {config: config, in: "plain", want: "c"},
		"default is covered":     {config: config, in: "plain", sent: exists("c", "a"), want: "c,a", wantUpdate: "c,a"},
		"not allowed by cluster": {config: config, in: "plain", sent: exists("x"), err: refused + "cluster whitelist",
			errUpdate: refused + "cluster whitelist"},
		"empty annotations":       {config: config, in: "empty", sent: exists("x"), want: "x", wantUpdate: "x"},
		"default of namespace":    {config: config, in: "own", want: "d"},
		"allowed by namespace":    {config: config, in: "own", sent: exists("a"), want: "a,d", wantUpdate: "a"},
		"not allowed":             {config: config, in: "own", sent: exists("c"), err: refused + "namespace whitelist", errUpdate: refused + "namespace whitelist"},
		"burstable":               {in: "plain", cpu: "1", want: memory, wantUpdate: memory},
		"burstable and defaults":  {config: config, in: "plain", cpu: "1", want: "c," + memory, wantUpdate: memory},
		"burstable, not allowed":  {in: "own", cpu: "1", err: refused + "namespace whitelist", errUpdate: refused + "namespace whitelist"},
		"bad defaults":            {in: "bad", sent: exists("x"), err: "unexpected end of JSON input", wantUpdate: "x"},
		"bad list":                {in: "badlist", sent: exists("x"), err: "invalid character 'x' looking for beginning of value", errUpdate: "invalid character 'x' looking for beginning of value"},
		"bad list, no toleration": {in: "badlist"},
		"missing namespace":       {in: "x", sent: exists("x"), err: `namespaces "x" not found`, errUpdate: `namespaces "x" not found`},
	} {
		p := Plugin(in, c.config)
		for _, operation := range []admission.Operation{admission.Create, admission.Update} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.in}, Spec: corev1.PodSpec{Tolerations: c.sent}}
			if c.cpu != "" {
				pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse(c.cpu)},
				}}}
			}
			want, wantErr := c.want, c.err
			a := admissiontest.Creation(pods, pod)
			if operation == admission.Update {
				a, want, wantErr = admissiontest.Change(pods, pod, pod.DeepCopy()), c.wantUpdate, c.errUpdate
			}
			for range 2 {
				err := p.Mutate(t.Context(), a)
				if message(err) != wantErr {
					t.Errorf("%s, %v: %v", name, operation, err)
				}
				if got := keys(pod.Spec.Tolerations); err == nil && got != want {
					t.Errorf("%s, %v: %s, want %s", name, operation, got, want)
				}
			}
			if err := p.Validate(t.Context(), a); wantErr == "" && err != nil || strings.HasPrefix(wantErr, refused) && err == nil {
				t.Errorf("%s, %v: validating: %v", name, operation, err)
			}
		}
	}
	if got := keys(config.Default[:2]); got != "c," {
		t.Errorf("the configuration was changed: %s", got)
	}
}

// TestStatusDecidesTheClass checks that the QoS class in the status of a pod is used if it is set, as in
// kube-apiserver.
func TestStatusDecidesTheClass(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed}}
	a := admissiontest.Creation(pods, pod)
	if err := Plugin(admissiontest.Objects{namespaces: {namespace("", "", "")}}, Config{}).Mutate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Tolerations) != 1 {
		t.Errorf("got %v", pod.Spec.Tolerations)
	}
	a.Subresource = "status"
	if err := Plugin(admissiontest.Objects{}, Config{}).Mutate(t.Context(), a); err != nil {
		t.Errorf("a subresource: %v", err)
	}
}

func TestConfig(t *testing.T) {
	const head = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	c, err := DecodeConfig([]byte(head + "default: [{key: a, operator: Exists}]\nwhitelist: [{key: b, operator: Exists}]\n"))
	if err != nil || keys(c.Default) != "a" || keys(c.Whitelist) != "b" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := DecodeConfig(nil); err != nil || c.Default != nil || c.Whitelist != nil {
		t.Errorf("no configuration: %+v, %v", c, err)
	}
	for text, want := range map[string]string{
		head + "default: [{key: a}, {operator: Exists, value: v}]": `invalid config: podtolerationrestriction.default[1].operator`,
		head + "whitelist: [{}]":                                   "podtolerationrestriction.whitelist[0].operator",
		head + "allowed: []":                                       `unknown field "allowed"`,
		"kind: Configuration":                                      "no kind",
	} {
		if _, err := DecodeConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
