package quota

import "testing"

func TestDecodeConfig(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\n"
	c, err := DecodeConfig([]byte(head + "limitedResources:\n- resource: pods\n  matchContains: [cpu]\n"))
	if err != nil || len(c.LimitedResources) != 1 || c.LimitedResources[0].MatchContains[0] != "cpu" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := DecodeConfig(nil); err != nil || c.LimitedResources != nil {
		t.Errorf("without a configuration: %+v, %v", c, err)
	}
	if _, err := DecodeConfig([]byte("apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration\n")); err != nil {
		t.Error(err)
	}
	for what, text := range map[string]string{
		"a field that is unknown": head + "limited: []\n",
		"another kind":            "apiVersion: apiserver.config.k8s.io/v1\nkind: Configuration\n",
		"another version":         "apiVersion: resourcequota.admission.k8s.io/v1\nkind: Configuration\n",
		"no resource":             head + "limitedResources:\n- matchContains: [cpu]\n",
	} {
		if _, err := DecodeConfig([]byte(text)); err == nil {
			t.Errorf("%s is no error", what)
		}
	}
}
