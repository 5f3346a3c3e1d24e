package kubectlhistory

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sigs.k8s.io/yaml"
)

// parse returns an object in YAML.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o, err := decode(body)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestMasked(t *testing.T) {
	before := parse(t, `{data: {same: eA==, other: eA==, old: eA==}, metadata: {annotations: {mine: x}}}`)
	after := parse(t, `{data: {same: eA==, other: eQ==, new: eA==}, metadata: {annotations: {mine: x,
		kubectl.kubernetes.io/last-applied-configuration: eA==}}}`)
	b, a := masked(resource{Version: "v1", Kind: "Secret"}, before, after)
	const wantBefore = "map[data:map[old:*** other:*** (before) same:***] metadata:map[annotations:map[mine:x]]]"
	const wantAfter = "map[data:map[new:*** other:*** (after) same:***] metadata:map[annotations:map[" +
		"kubectl.kubernetes.io/last-applied-configuration:*** mine:x]]]"
	if fmt.Sprint(b.Object) != wantBefore || fmt.Sprint(a.Object) != wantAfter {
		t.Errorf("%v\n%v", b.Object, a.Object)
	}
	if b, a := masked(resource{Version: "v1", Kind: "Secret"}, nil, after); b != nil || fmt.Sprint(a.Object["data"]) != "map[new:*** other:*** same:***]" {
		t.Errorf("%v %v", b, a)
	}
	if b, a := masked(resource{Version: "v1", Kind: "ConfigMap"}, before, after); b != before || a != after {
		t.Error("a ConfigMap is masked")
	}
}

func TestTableCells(t *testing.T) {
	var table metav1.Table
	if err := json.Unmarshal([]byte(`{"columnDefinitions":[{"name":"Name"},{"name":"Count"},{"name":"More","priority":1}],
		"rows":[{"cells":["a",1,"x"],"object":{"metadata":{"namespace":"n"}}},{"cells":["b",null,"y"],"object":{"metadata":{"namespace":"m"}}}]}`),
		&table); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		wide, namespaces bool
		want             string
	}{
		{false, false, "[NAME COUNT] [[a 1] [b ]]"},
		{true, true, "[NAMESPACE NAME COUNT MORE] [[n a 1 x] [m b  y]]"},
	} {
		header, rows, err := tableCells(&table, c.wide, c.namespaces)
		if got := fmt.Sprint(header, rows); err != nil || got != c.want {
			t.Errorf("%s %v, want %s", got, err, c.want)
		}
	}
}
