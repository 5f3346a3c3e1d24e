package runtimeclass

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func runtimeClass(name string, overhead *nodev1.Overhead, scheduling *nodev1.Scheduling) registry.Object {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Overhead: overhead, Scheduling: scheduling}
}

func cpu(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func TestRuntimeClass(t *testing.T) {
	exists := func(key string) []corev1.Toleration {
		return []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
	p := Plugin(admissiontest.Objects{classes: {
		runtimeClass("plain", nil, nil),
		runtimeClass("heavy", &nodev1.Overhead{PodFixed: cpu("1")}, nil),
		runtimeClass("empty", &nodev1.Overhead{}, nil),
		runtimeClass("somewhere", nil, &nodev1.Scheduling{
			NodeSelector: map[string]string{"a": "1", "b": "2"}, Tolerations: exists("k"),
		}),
	}})
	const rejected = `pods "p" is forbidden: `
	mismatch, undefined := rejected+errOtherOverhead.Error(), rejected+errUndefinedOverhead.Error()
	for name, c := range map[string]struct {
		class    string
		sent     corev1.PodSpec
		mutated  string // the error of the mutating half
		judged   string // the error of the validating half
		overhead string
		selector map[string]string
		keys     []string
	}{
		"no class":                    {},
		"no class and an overhead":    {sent: corev1.PodSpec{Overhead: cpu("1")}, judged: undefined, overhead: "1"},
		"missing":                     {class: "x", mutated: rejected + `pod rejected: RuntimeClass "x" not found`},
		"plain":                       {class: "plain"},
		"plain and an overhead":       {class: "plain", sent: corev1.PodSpec{Overhead: cpu("1")}, judged: undefined, overhead: "1"},
		"plain and an empty overhead": {class: "plain", sent: corev1.PodSpec{Overhead: corev1.ResourceList{}}, judged: undefined},
		"overhead":                    {class: "heavy", overhead: "1"},
		"equal overhead":              {class: "heavy", sent: corev1.PodSpec{Overhead: cpu("1000m")}, overhead: "1"},
		"other overhead":              {class: "heavy", sent: corev1.PodSpec{Overhead: cpu("2")}, mutated: mismatch, overhead: "2"},
		"overhead of nothing":         {class: "empty"},
		"other overhead than nothing": {class: "empty", sent: corev1.PodSpec{Overhead: cpu("2")}, mutated: mismatch, overhead: "2"},
		"scheduling":                  {class: "somewhere", selector: map[string]string{"a": "1", "b": "2"}, keys: []string{"k"}},
		"scheduling and selector": {
			class: "somewhere", sent: corev1.PodSpec{NodeSelector: map[string]string{"c": "3", "b": "2"}, Tolerations: exists("o")},
			selector: map[string]string{"a": "1", "b": "2", "c": "3"}, keys: []string{"o", "k"},
		},
		"scheduling that conflicts": {
			class: "somewhere", sent: corev1.PodSpec{NodeSelector: map[string]string{"b": "3"}},
			mutated: rejected + "conflict: runtimeClass.scheduling.nodeSelector[b] = 2; pod.spec.nodeSelector[b] = 3",
		},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: c.sent}
		if c.class != "" {
			pod.Spec.RuntimeClassName = &c.class
		}
		a := admissiontest.Creation(pods, pod)
		err := p.Mutate(t.Context(), a)
		if err == nil {
			err = p.Mutate(t.Context(), a) // the second time changes nothing
		}
		if message(err) != c.mutated {
			t.Errorf("%s: mutating: %v", name, err)
		}
		if err != nil {
			continue
		}
		if err := p.Validate(t.Context(), a); message(err) != c.judged {
			t.Errorf("%s: validating: %v", name, err)
		}
		overhead := ""
		if q, ok := pod.Spec.Overhead[corev1.ResourceCPU]; ok {
			overhead = q.String()
		}
		var keys []string
		for _, t := range pod.Spec.Tolerations {
			keys = append(keys, t.Key)
		}
		if overhead != c.overhead || fmt.Sprint(pod.Spec.NodeSelector) != fmt.Sprint(c.selector) ||
			fmt.Sprint(keys) != fmt.Sprint(c.keys) {
			t.Errorf("%s: got %q, %v, %v", name, overhead, pod.Spec.NodeSelector, keys)
		}
	}
}

func TestOtherWritesAreIgnored(t *testing.T) {
	p := Plugin(admissiontest.Objects{})
	pod := &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: new(string), Overhead: cpu("1")}}
	created := admissiontest.Creation(pods, pod)
	created.Subresource = "eviction"
	for _, a := range []*admission.Attributes{created, admissiontest.Change(pods, pod, pod)} {
		if err := p.Mutate(t.Context(), a); err != nil {
			t.Error(err)
		}
		if err := p.Validate(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
