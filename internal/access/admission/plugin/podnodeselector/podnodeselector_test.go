package podnodeselector

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const sampleConfig = `
podNodeSelectorPluginConfig:
  clusterDefaultNodeSelector: pool = general
  restricted: pool=general,disk=ssd
  open: ""
`

func namespace(name string, annotations map[string]string) registry.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func selected(in, name string, selector map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}, Spec: corev1.PodSpec{NodeSelector: selector},
	}
}

func TestNodeSelectors(t *testing.T) {
	config, err := DecodeConfig([]byte(sampleConfig))
	if err != nil {
		t.Fatal(err)
	}
	in := admissiontest.Objects{namespaces: {
		namespace("plain", nil), namespace("open", nil), namespace("restricted", nil),
		namespace("own", map[string]string{annotation: "pool=own,os=linux"}),
		namespace("none", map[string]string{annotation: ""}),
		namespace("bad", map[string]string{annotation: "pool"}),
	}}
	type set = map[string]string
	const conflict = `pods "p" is forbidden: pod node label selector conflicts with its namespace node label selector`
	for name, c := range map[string]struct {
		config     Config
		in         string
		sent, want set
		err        string
	}{
		"no configuration":     {Config{}, "plain", set{"a": "b"}, set{"a": "b"}, ""},
		"nothing at all":       {Config{}, "plain", nil, nil, ""},
		"default":              {config, "plain", nil, set{"pool": "general"}, ""},
		"default and pod":      {config, "plain", set{"a": "b", "pool": "general"}, set{"a": "b", "pool": "general"}, ""},
		"default and conflict": {config, "plain", set{"pool": "x"}, nil, conflict},
		"annotation":           {config, "own", set{"a": "b"}, set{"a": "b", "os": "linux", "pool": "own"}, ""},
		"annotation, conflict": {Config{}, "own", set{"os": "windows"}, nil, conflict},
		"empty annotation":     {config, "none", set{"a": "b"}, set{"a": "b"}, ""},
		"bad annotation":       {config, "bad", nil, nil, "invalid selector: [pool]"},
		"missing namespace":    {config, "x", nil, nil, "Internal error occurred: namespace x does not exist"},
		"allowed":              {config, "restricted", set{"disk": "ssd"}, set{"disk": "ssd", "pool": "general"}, ""},
		"not allowed": {config, "restricted", set{"disk": "hdd"}, nil,
			`pods "p" is forbidden: pod node label selector labels conflict with its namespace whitelist`},
		"all allowed": {config, "open", set{"disk": "hdd"}, set{"disk": "hdd", "pool": "general"}, ""},
	} {
		p := Plugin(in, c.config)
		pod := selected(c.in, "p", c.sent)
		a := admissiontest.Creation(pods, pod)
		for range 2 {
			err := p.Mutate(t.Context(), a)
			if message(err) != c.err {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil && fmt.Sprint(pod.Spec.NodeSelector) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v", name, pod.Spec.NodeSelector)
			}
		}
		if err := p.Validate(t.Context(), a); message(err) != c.err {
			t.Errorf("%s: validating: %v", name, err)
		}
	}
	pod := selected("own", "p", set{"os": "windows"})
	for _, a := range []*admission.Attributes{
		admissiontest.Change(pods, pod, pod), admissiontest.Creation(corev1.Resource("podtemplates"), pod),
	} {
		p := Plugin(in, config)
		if err := p.Mutate(t.Context(), a); err != nil {
			t.Error(err)
		}
		if err := p.Validate(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
}

func TestBadConfigs(t *testing.T) {
	for text, want := range map[string]string{
		"podNodeSelectorPluginConfig: {x: a}":       "podNodeSelectorPluginConfig[x]: invalid selector: [a]",
		"podNodeSelectorPluginConfig: {x: 1}":       "cannot unmarshal",
		"podNodeSelectorPlugin: {}":                 `unknown field "podNodeSelectorPlugin"`,
		"podNodeSelectorPluginConfig: {x: \"a=?\"}": "podNodeSelectorPluginConfig[x]",
	} {
		if _, err := DecodeConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if c, err := DecodeConfig(nil); err != nil || c.Default != nil || c.Allowed != nil {
		t.Errorf("no configuration: %+v, %v", c, err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
