package tolerations

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// parse reads tolerations of the form "key operator value effect seconds"; "-" is empty.
func parse(lines ...string) []corev1.Toleration {
	var out []corev1.Toleration
	for _, line := range lines {
		f := strings.Fields(strings.ReplaceAll(line, "-", `""`))
		for i := range f {
			f[i] = strings.Trim(f[i], `"`)
		}
		t := corev1.Toleration{
			Key: f[0], Operator: corev1.TolerationOperator(f[1]), Value: f[2], Effect: corev1.TaintEffect(f[3]),
		}
		if len(f) > 4 {
			n, _ := strconv.ParseInt(f[4], 10, 64)
			t.TolerationSeconds = &n
		}
		out = append(out, t)
	}
	return out
}

func shown(list []corev1.Toleration) []string {
	out := []string{}
	for _, t := range list {
		line := ""
		for _, f := range []string{t.Key, string(t.Operator), t.Value, string(t.Effect)} {
			if f == "" {
				f = "-"
			}
			line += f + " "
		}
		if t.TolerationSeconds != nil {
			line += fmt.Sprint(*t.TolerationSeconds)
		}
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

func TestMerge(t *testing.T) {
	for _, c := range []struct{ first, second, want []string }{
		{nil, nil, nil},
		{[]string{"a Exists - -"}, []string{"b Equal v NoSchedule"}, []string{"a Exists - -", "b Equal v NoSchedule"}},
		{[]string{"a Equal v NoSchedule"}, []string{"a Equal v NoSchedule"}, []string{"a Equal v NoSchedule"}},
		{[]string{"a Equal v NoSchedule"}, []string{"a Exists - -"}, []string{"a Exists - -"}},
		{[]string{"a Exists - -"}, []string{"a Equal v NoSchedule"}, []string{"a Exists - -"}},
		{[]string{"a Equal v NoSchedule", "b Exists - -"}, []string{"- Exists - -"}, []string{"- Exists - -"}},
		{[]string{"- Exists - NoExecute"}, []string{"a Exists - NoSchedule"},
			[]string{"- Exists - NoExecute", "a Exists - NoSchedule"}},
		{[]string{"a Exists - NoExecute 5"}, []string{"a Exists - NoExecute 9"}, []string{"a Exists - NoExecute 9"}},
		{[]string{"a Exists - NoExecute 5"}, []string{"a Exists - NoExecute"}, []string{"a Exists - NoExecute"}},
		{[]string{"a Equal v -"}, []string{"a Equal w -"}, []string{"a Equal v -", "a Equal w -"}},
		{[]string{"a - v -"}, []string{"a Equal v -"}, []string{"a - v -"}},
		{[]string{"a Equal v -"}, []string{"a - v -"}, []string{"a - v -"}},
		{[]string{"a Lt 5 -"}, []string{"a Lt 7 -"}, []string{"a Lt 5 -", "a Lt 7 -"}},
	} {
		first := parse(c.first...)
		got := Merge(first, parse(c.second...))
		if !slices.Equal(shown(got), append([]string{}, c.want...)) {
			t.Errorf("%q and %q: %q, want %q", c.first, c.second, shown(got), c.want)
		}
		if again := Merge(got, parse(c.second...)); !slices.Equal(shown(again), shown(got)) {
			t.Errorf("%q and %q: a second time %q", c.first, c.second, shown(again))
		}
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		list, allowed []string
		want          bool
	}{
		{[]string{"a Exists - -"}, nil, true},
		{nil, []string{"a Exists - -"}, true},
		{[]string{"a Equal v NoSchedule"}, []string{"a Exists - -"}, true},
		{[]string{"a Exists - -"}, []string{"a Equal v NoSchedule"}, false},
		{[]string{"a Equal v -", "b Exists - -"}, []string{"a Exists - -"}, false},
		{[]string{"a Equal v -", "b Exists - -"}, []string{"- Exists - -"}, true},
		{[]string{"a Exists - NoExecute 9"}, []string{"a Exists - NoExecute 5"}, false},
		{[]string{"a Exists - NoExecute 4"}, []string{"a Exists - NoExecute 5"}, true},
	} {
		if got := Allowed(parse(c.list...), parse(c.allowed...)); got != c.want {
			t.Errorf("%q within %q: %v", c.list, c.allowed, got)
		}
	}
}
