package core

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestValidateLimitRange(t *testing.T) {
	one := func(name corev1.ResourceName, value string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(value)}
	}
	cpu := func(value string) corev1.ResourceList { return one("cpu", value) }
	const (
		pod, container, claim = corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim
		at                    = "spec.limits[0]."
	)
	for name, c := range map[string]struct {
		items []corev1.LimitRangeItem
		want  []string
	}{
		"good": {[]corev1.LimitRangeItem{
			{Type: container, Min: cpu("1"), DefaultRequest: cpu("2"), Default: cpu("3"), Max: cpu("4"), MaxLimitRequestRatio: cpu("4")},
			{Type: pod, Max: cpu("1")}, {Type: claim, Min: one("storage", "1")}, {Type: "a/b", Max: one("storage", "1")},
		}, nil},
		"type": {[]corev1.LimitRangeItem{{Type: "x"}}, []string{
			at + `type: Invalid value: "x": must be a standard limit type or fully qualified`,
		}},
		"twice": {[]corev1.LimitRangeItem{{Type: pod}, {Type: pod}}, []string{`spec.limits[1].type: Duplicate value: "Pod"`}},
		"names": {[]corev1.LimitRangeItem{{Type: pod, Max: one("storage", "1")}}, []string{
			at + `max[storage]: Invalid value: "storage": must be a standard resource for containers`,
		}},
		"defaults of pods": {[]corev1.LimitRangeItem{{Type: pod, Default: cpu("1"), DefaultRequest: cpu("2")}}, []string{
			at + "default: Forbidden: may not be specified when `type` is 'Pod'",
			at + "defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
		}},
		"claim": {[]corev1.LimitRangeItem{{Type: claim}}, []string{
			at + "limits: Required value: either minimum or maximum storage value is required, but neither was provided",
		}},
		"order": {[]corev1.LimitRangeItem{{Type: container, Min: cpu("4"), DefaultRequest: cpu("3"), Default: cpu("2"), Max: cpu("1")}},
			[]string{
				at + `min[cpu]: Invalid value: "4": min value 4 is greater than max value 1`,
				at + `defaultRequest[cpu]: Invalid value: "3": min value 4 is greater than default request value 3`,
				at + `defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than max value 1`,
				at + `defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than default limit value 2`,
				at + `default[cpu]: Invalid value: "4": min value 4 is greater than default value 2`,
				at + `default[cpu]: Invalid value: "1": default value 2 is greater than max value 1`,
			}},
		"no overcommitment": {[]corev1.LimitRangeItem{
			{Type: container, DefaultRequest: one("a.io/x", "1"), Default: one("a.io/x", "2")},
		}, []string{
			at + `defaultRequest[a.io/x]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in a.io/x`,
		}},
		"ratio": {[]corev1.LimitRangeItem{{Type: pod, MaxLimitRequestRatio: cpu("500m")}}, []string{
			at + `maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1`,
		}},
		"large ratio": {[]corev1.LimitRangeItem{{Type: pod, Min: cpu("2"), Max: cpu("3"), MaxLimitRequestRatio: cpu("2")}}, []string{
			at + `maxLimitRequestRatio[cpu]: Invalid value: "2": ratio 2 is greater than max/min = 1.500000`,
		}},
	} {
		var got []string
		for _, err := range validateLimitRange(&corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: c.items}}) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
