package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

const customManifest = "testdata/kubectl/custom.yaml"

// TestKubectlCustom carries out the usual operations with kubectl and custom resources.
func TestKubectlCustom(t *testing.T) {
	paths := []string{program(t, "kubectl")}
	if other, err := exec.LookPath("kubectl"); err == nil && other != paths[0] {
		paths = append(paths, other)
	}
	for _, path := range paths {
		t.Run(kubectlVersion(t, path), func(t *testing.T) {
			s := serve(t)
			k := newKubectl(s, path)
			k.definesCustom(t)
			k.writesCustom(t)
			k.readsCustom(t)
			k.removesCustom(t)
		})
	}
}

// definesCustom installs a definition and reads its discovery data and explanation.
func (k kubectl) definesCustom(t *testing.T) {
	t.Helper()
	k.says(t, []string{"apply", "--server-side", "-f", customManifest}, "serverside-applied")
	k.says(
		t, []string{"wait", "--for=condition=Established", "--timeout=60s", "crd/fleets.e2e.example.com"}, "condition met",
	)
	k.says(t, []string{"get", "crd"}, `^fleets\.e2e\.example\.com +Namespaced +v1\(storage\) +20`)
	k.says(t, []string{"describe", "crd", "fleets.e2e.example.com"}, "InitialNamesAccepted", "Kind: +Fleet")
	k.says(
		t, []string{"api-resources", "--api-group=e2e.example.com", "-o", "wide"},
		`^fleets +fl +e2e\.example\.com/v1 +true +Fleet +delete,deletecollection,get,list,patch,create,update,watch +all$`,
	)
	k.says(
		t, []string{"explain", "fleets.spec"}, "GROUP: +e2e.example.com", "How many ships there shall be",
		"replicas\t<integer> -required-", "color\t<string>",
	)
	k.says(t, []string{"explain", "fl", "--recursive"}, "ships\t<\\[\\]Object>", "  +name\t<string>")
}

const fleetManifest = `apiVersion: e2e.example.com/v1
kind: Fleet
metadata:
  name: north
spec:
  replicas: 2
  ships:
  - name: one
  - name: two
`

// writesCustom writes in all possible ways.
func (k kubectl) writesCustom(t *testing.T) {
	t.Helper()
	k.runWith(t, fleetManifest, "create", "-f", "-")
	if out := k.runWith(
		t, strings.Replace(fleetManifest, "replicas: 2", "replicas: 3", 1), "apply", "-f", "-",
	); !strings.Contains(out, "configured") {
		t.Errorf("applied: %s", out)
	}
	k.runWith(
		t, strings.Replace(fleetManifest, "- name: two", "- name: three", 1), "apply", "--server-side", "--force-conflicts",
		"--field-manager=other", "-f", "-",
	)
	if names := k.jsonpath(t, "{.spec.ships[*].name}", "fleet", "north"); !strings.Contains(names, "one") ||
		!strings.Contains(names, "three") {
		t.Errorf("the ships are %q", names)
	}
	k.says(t, []string{"scale", "fleet", "north", "--replicas=7"}, "scaled")
	if n := k.jsonpath(t, "{.spec.replicas}", "fl", "north"); n != "7" {
		t.Errorf("scaled to %q", n)
	}
	k.run(
		t, "patch", "fleet", "north", "--subresource=status", "--type=merge", "-p",
		`{"status":{"ready":6,"conditions":[{"type":"Ready","status":"True"}]},"spec":{"replicas":1}}`,
	)
	if got := k.jsonpath(t, "{.status.ready} {.spec.replicas}", "fl", "north"); got != "6 7" {
		t.Errorf("ready and replicas are %q", got)
	}
	k.says(t, []string{"wait", "--for=condition=Ready", "fleet/north", "--timeout=30s"}, "condition met")
	k.says(t, []string{"label", "fleet", "north", "sea=cold"}, "labeled")
	k.says(t, []string{"annotate", "fleet", "north", "note=x"}, "annotated")
	k.run(t, "patch", "fl", "north", "--type=json", "-p", `[{"op":"replace","path":"/spec/color","value":"red"}]`)
	k.fails(
		t, 1, "spec.color: Unsupported value", "patch", "fl", "north", "--type=merge", "-p", `{"spec":{"color":"mauve"}}`,
	)
	a := k.try(t, strings.Replace(fleetManifest, "replicas: 2", "replica: 2", 1), "create", "-f", "-")
	if a.code == 0 || !strings.Contains(a.err, `unknown field "spec.replica"`) {
		t.Errorf("an unknown field: %d %s", a.code, a.err)
	}
}

// readsCustom reads in all output formats.
func (k kubectl) readsCustom(t *testing.T) {
	t.Helper()
	k.says(t, []string{"get", "fleets"}, `^NAME +REPLICAS +READY +AGE$`, `^north +7 +6 `)
	k.says(t, []string{"get", "fl", "-o", "wide"}, `^NAME +REPLICAS +READY +COLOR +AGE$`, `^north +7 +6 +red `)
	k.says(t, []string{"get", "all"}, `^fleet\.e2e\.example\.com/north +7`)
	k.says(
		t, []string{"get", "fleets.v1.e2e.example.com", "-l", "sea=cold", "-o", "name"}, `^fleet\.e2e\.example\.com/north$`,
	)
	k.says(t, []string{"get", "fl", "--field-selector", "spec.color=red", "-o", "name"}, `north`)
	k.says(t, []string{"get", "fl", "north", "-o", "yaml"}, `^kind: Fleet$`, `^  color: red$`)
	k.says(t, []string{"describe", "fleet", "north"}, `^Kind: +Fleet$`, `Replicas: +7`, `Ready: +6`)
	k.says(t, []string{"get", "fleet/north", "--subresource=status", "-o", "jsonpath={.status.ready}"}, `^6$`)
	if out := k.run(t, "get", "fl", "--field-selector", "spec.color=blue", "-o", "name"); out != "" {
		t.Errorf("blue are %q", out)
	}
}

// removesCustom deletes the definition together with the objects.
func (k kubectl) removesCustom(t *testing.T) {
	t.Helper()
	k.says(t, []string{"delete", "-f", customManifest, "--timeout=60s"}, "deleted")
	a := k.try(t, "", "get", "fleets")
	if a.code == 0 || !strings.Contains(a.err, "doesn't have a resource type") && !strings.Contains(a.err, "not find") {
		t.Errorf("after the definition went: %d %s%s", a.code, a.out, a.err)
	}
}
