package quota

import (
	"strings"
	"testing"
)

func TestDecodeConfig(t *testing.T) {
	const head = "apiVersion: resourcequota.admission.k8s.io/v1\nkind: Configuration\n"
	c, err := DecodeConfig([]byte(head + "limitedResources:\n- resource: pods\n  matchContains: [cpu]\n"))
	if err != nil || len(c.LimitedResources) != 1 || c.LimitedResources[0].MatchContains[0] != "cpu" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := DecodeConfig(nil); err != nil || c.LimitedResources != nil {
		t.Errorf("without a configuration: %+v, %v", c, err)
	}
	if _, err := DecodeConfig([]byte(strings.Replace(head, "/v1", "/v1beta1", 1))); err != nil {
		t.Error(err)
	}
	for what, text := range map[string]string{
		"a field that is unknown": head + "limited: []\n",
		"another kind":            "apiVersion: resourcequota.admission.k8s.io/v1\nkind: Other\n",
		"another version":         "apiVersion: resourcequota.admission.k8s.io/v2\nkind: Configuration\n",
		"no resource":             head + "limitedResources:\n- matchContains: [cpu]\n",
	} {
		if _, err := DecodeConfig([]byte(text)); err == nil {
			t.Errorf("%s is no error", what)
		}
	}
}
