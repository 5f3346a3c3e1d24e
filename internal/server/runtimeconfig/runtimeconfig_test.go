package runtimeconfig

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/resource"
)

// TestEnabled: the more specific setting counts, wherever it is in the list.
func TestEnabled(t *testing.T) {
	for _, c := range []struct{ values, on, off string }{
		{"", "/v1/pods,apps/v1/deployments", "networking.k8s.io/v1beta1/ipaddresses,resource.k8s.io/v1alpha3/devicetaintrules"},
		{"api/all=true", "/v1/pods,networking.k8s.io/v1beta1/ipaddresses,resource.k8s.io/v1alpha3/devicetaintrules", ""},
		{"api/beta=true", "networking.k8s.io/v1beta1/ipaddresses", "resource.k8s.io/v1alpha3/devicetaintrules"},
		{"api/alpha=true", "resource.k8s.io/v1alpha3/devicetaintrules", "networking.k8s.io/v1beta1/ipaddresses"},
		{"api/beta=false,api/all=true", "apps/v1/deployments", "networking.k8s.io/v1beta1/ipaddresses"},
		{"networking.k8s.io/v1beta1=false,api/beta=true", "storage.k8s.io/v1beta1/volumeattributesclasses",
			"networking.k8s.io/v1beta1/ipaddresses"},
		{"apps/v1/deployments=true,apps/v1=false", "apps/v1/deployments", "apps/v1/daemonsets"},
		{"batch/v1/cronjobs=false", "batch/v1/jobs", "batch/v1/cronjobs"},
		{"api/all=false,api/ga=true,v1=true,apps/v1=0", "/v1/pods,batch/v1/jobs", "apps/v1/deployments"},
		{" networking.k8s.io/v1beta1 ,apps/v1=f", "networking.k8s.io/v1beta1/ipaddresses", "apps/v1/deployments"},
	} {
		config, err := Parse([]string{c.values}, Compatibility{})
		if err != nil {
			t.Errorf("%s: %v", c.values, err)
			continue
		}
		for list, want := range map[string]bool{c.on: true, c.off: false} {
			for name := range strings.SplitSeq(list, ",") {
				words := strings.Split(name, "/")
				if name != "" && config.Enabled(schema.GroupVersionResource{
					Group: words[0], Version: words[1], Resource: words[2],
				}) != want {
					t.Errorf("%q: %s is %v", c.values, name, !want)
				}
			}
		}
	}
}

// TestParseErrors compares the errors with those of kube-apiserver 1.36. Only the one about the core group
// differs.
func TestParseErrors(t *testing.T) {
	for values, want := range map[string]string{
		"api/all=false":                 "--runtime-config=api/all=false conflicts with --enable-priority-and-fairness=true",
		"api/ga=false":                  "--runtime-config=api/ga=false conflicts with --enable-priority-and-fairness=true",
		"nope.k8s.io/v1=true":           "unknown api groups nope.k8s.io/v1",
		"b.c/v2/x=false,a/v1=true":      "unknown api groups a/v1,b.c/v2",
		"apps/v2=true":                  "group version apps/v2 that has not been registered",
		"apps/v1=maybe":                 `invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax`,
		"api/beta=1":                    "invalid value api/beta=1",
		"api/all":                       "invalid value api/all=",
		"wardle.k8s.io/v1=,api/ga=":     "unknown api groups wardle.k8s.io/v1",
		"apps/v1/x/y=true":              "runtime-config invalid key apps/v1/x/y",
		"apps=true":                     "runtime-config invalid key apps",
		"/v1x=true":                     "group version v1x that has not been registered",
		"v1=false":                      "--runtime-config switches off v1, the core group, which the server cannot do without",
		"apps/v1/Deployments=false":     `invalid key apps/v1/Deployments: group/version/resource and resource is always ` + `lowercase plural, not "Deployments"`,
		"apps/v1/nosuch=false":          "",
		"api/legacy=true":               "",
		"extensions/v1beta1=true":       "",
		"imagepolicy.k8s.io/v1alpha1=1": "",
	} {
		_, err := Parse([]string{values}, Compatibility{})
		if want == "" && err != nil || want != "" && (err == nil || config.CommandLine(err) != want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// TestLaterVersions compares the served versions that are newer than the emulated release with kube-apiserver
// 1.36.3: mutatingadmissionpolicies v1 is from 1.36, v1beta1 from 1.34.
func TestLaterVersions(t *testing.T) {
	const group = "admissionregistration.k8s.io"
	for _, c := range []struct {
		values            string
		later, laterNamed bool
		v1, v1beta1       bool
		err               string
	}{
		{values: ""},
		{values: group + "/v1beta1=true", v1beta1: true},
		{later: true},
		{values: group + "/v1beta1=true", later: true, v1: true, v1beta1: true},
		{values: group + "/v1=true"},
		{values: group + "/v1=true", laterNamed: true, v1: true},
		{values: group + "/v1/mutatingadmissionpolicies=true", laterNamed: true, v1: true},
		{
			values: group + "/v1/mutatingadmissionpolicies=true",
			err: "cannot enable resource admissionregistration.k8s.io/v1, Resource=mutatingadmissionpolicies in runtime-config because it is " +
				"introduced at 1.36 after the current version 1.35. Consider setting --runtime-config-emulation-forward-compatible=true",
		},
	} {
		r := release.Of(35)
		gates, err := features.Parse(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		config, err := Parse([]string{c.values}, Compatibility{Release: r, Later: c.later, LaterNamed: c.laterNamed})
		if err != nil {
			t.Fatal(err)
		}
		kinds := resource.Kinds(gates)
		err = config.Apply(kinds)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		for _, k := range kinds {
			if k.Resource == "mutatingadmissionpolicies" && (k.Version("v1").Disabled == c.v1 || k.Version("v1beta1").Disabled == c.v1beta1) {
				t.Errorf("%+v: v1 is served: %v, v1beta1: %v", c, !k.Version("v1").Disabled, !k.Version("v1beta1").Disabled)
			}
		}
	}
}
