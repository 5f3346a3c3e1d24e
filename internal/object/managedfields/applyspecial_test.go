package managedfields

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// specialApply is an apply of a kind that hardly ever occurs in the random histories.
type specialApply struct {
	name   string
	kind   testKind
	live   string // without managedFields
	owners map[string]string
	sent   string
	force  bool
}

// specialApplies are by the manager "me". Owners are named by operation, manager and subresource.
func specialApplies() []specialApply {
	custom, deployment := customResource(), kindOf[appsv1.Deployment]("apps", "v1", "Deployment")
	revision := kindOf[appsv1.ControllerRevision]("apps", "v1", "ControllerRevision")
	const port = `k:{\"port\":1,\"protocol\":\"UDP\"}`
	return []specialApply{
		{"the key of a kept item is not owned", custom, `"spec":{"inner":{"ports":[{"port":1,"protocol":"UDP","name":"x"}]}}`,
			map[string]string{
				"Apply/me": `{"f:spec":{"f:inner":{"f:ports":{"` + port +
					`":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}}`,
				"Apply/other": `{"f:spec":{"f:inner":{"f:ports":{"` + port + `":{".":{},"f:name":{}}}}}}`,
			}, `"spec":{"text":"a"}`, false},
		{"an empty list where null was applied", custom, `"spec":{"text":"a","inner":{"items":[]}}`, map[string]string{
			"Apply/me": `{"f:spec":{"f:inner":{"f:items":{}},"f:text":{}}}`,
		}, `"spec":{"inner":{"text":"b","items":[]}}`, false},
		{"an empty list that is applied where null was", custom, `"spec":{"text":"a","inner":{"items":null}}`,
			map[string]string{
				"Apply/me": `{"f:spec":{"f:inner":{"f:items":{}},"f:text":{}}}`,
			}, `"spec":{"inner":{"text":"b","items":[]}}`, false},
		{"an empty map around an empty list", custom, `"spec":{"inner":{"text":"x","items":[]}}`, map[string]string{
			"Apply/me": `{"f:spec":{"f:inner":{}}}`,
		}, `"spec":{"inner":{}}`, false},
		{"equal numbers of two types", custom, `"spec":{"number":9007199254740993}`, map[string]string{
			"Apply/me": `{"f:spec":{"f:number":{}}}`,
		}, `"spec":{"number":9007199254740992.0}`, false},
		{"null beside what is removed", deployment,
			`"spec":{"template":{"spec":{"containers":null,"securityContext":{"runAsUser":1}}}}`, map[string]string{
				"Apply/me": `{"f:spec":{"f:template":{"f:spec":{"f:securityContext":{"f:runAsUser":{}}}}}}`,
			}, `"spec":{"template":{"spec":{"securityContext":{"runAsGroup":null}}}}`, false},
		{"an item whose key is a default", custom, `"spec":{"defaults":[{"protocol":"TCP","value":"v"}]}`, map[string]string{
			"Apply/me": `{"f:spec":{"f:defaults":{"k:{\"protocol\":\"TCP\"}":{}}}}`,
		}, `"spec":{"defaults":[{}]}`, false},
		{"an item that is no member of the last fields", custom, `"spec":{"items":[{"name":"a","value":"x"}]}`,
			map[string]string{
				"Apply/me": `{"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{"f:value":{}}}}}`,
			}, `"spec":{"text":"a"}`, false},
		{"a field of another in a removed item", custom, `"spec":{"items":[{"name":"a","value":"x"}]}`, map[string]string{
			"Apply/me":    `{"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:value":{}}}}}`,
			"Apply/other": `{"f:spec":{"f:items":{"k:{\"name\":\"a\"}":{"f:value":{}}}}}`,
		}, `"spec":{"text":"a"}`, false},
		{"the status of another, by force", custom, `"spec":{"text":"a"},"status":{"n":1}`, map[string]string{
			"Update/other/status": `{"f:status":{"f:n":{}}}`,
		}, `"status":{"n":2}`, true},
		{"the status of another", custom, `"spec":{"text":"a"},"status":{"n":1}`, map[string]string{
			"Update/other/status": `{"f:status":{"f:n":{}}}`,
		}, `"status":{"n":2}`, false},
		{"JSON in a field of its own type", revision, `"data":{},"revision":1`, map[string]string{
			"Update/other": `{"f:data":{},"f:revision":{}}`,
		}, `"metadata":{"name":"a","labels":{"a":"b"}}`, false},
		{"an object that does not fit its schema", custom, `"spec":{"unknown":1}`, map[string]string{
			"Update/other": `{"f:spec":{"f:text":{}}}`,
		}, `"spec":{"text":"a"}`, false},
		{"two conflicts", custom, `"spec":{"text":"a","number":1}`, map[string]string{
			"Update/b": `{"f:spec":{"f:number":{}}}`, "Apply/a": `{"f:spec":{"f:number":{},"f:text":{}}}`,
			"Apply/c": `{"f:spec":{"f:text":{}}}`,
		}, `"spec":{"text":"b","number":2}`, false},
		{"an owned apiVersion", custom, `"spec":{"text":"a","flag":true}`, map[string]string{
			"Apply/me": `{"f:apiVersion":{},"f:spec":{"f:text":{}}}`,
		}, `"spec":{"flag":true}`, false},
		{"the same items in another order", custom, `"spec":{"texts":["a","b"]}`, map[string]string{
			"Apply/me": `{"f:spec":{"f:texts":{"v:\"a\"":{},"v:\"b\"":{}}}}`,
		}, `"spec":{"texts":["b","a"]}`, false},
	}
}

// TestSpecialApplies compares the results of the two algorithms for chosen applies.
func TestSpecialApplies(t *testing.T) {
	for _, c := range specialApplies() {
		t.Run(c.name, func(t *testing.T) {
			m, live := c.kind.manager(t), c.object(t)
			sent := c.tree(t, c.sent)
			want, wantErr := m.applyGeneral(context.Background(), live, sent, "me", c.force, testNow)
			got, err := m.Apply(context.Background(), live, sent, "me", c.force, testNow)
			if a, b := refusal(err), refusal(wantErr); a != b {
				t.Fatalf("got %s\nwant %s", a, b)
			}
			if err != nil {
				return
			}
			if a, b := asJSON(got), asJSON(want); a != b {
				t.Errorf("got\n%s\nwant\n%s", a, b)
			}
		})
	}
}

// tree returns a document with the given members, and the apiVersion, kind and name of a.
func (a specialApply) tree(t *testing.T, members string) map[string]any {
	var out map[string]any
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,%s}`, a.kind.gvk.GroupVersion(), a.kind.gvk.Kind, members)
	if err := scheme.UnmarshalTree([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	if out["metadata"] == nil {
		out["metadata"] = map[string]any{"name": "a"}
	}
	return out
}

func (a specialApply) object(t *testing.T) registry.Object {
	tree := &unstructured.Unstructured{Object: a.tree(t, a.live)}
	tree.SetUID("u")
	var entries []any
	for owner, fields := range a.owners {
		var operation, manager, subresource string
		for i, part := range strings.Split(owner, "/") {
			*[]*string{&operation, &manager, &subresource}[i] = part
		}
		var set map[string]any
		if err := scheme.UnmarshalTree([]byte(fields), &set); err != nil {
			t.Fatal(err)
		}
		entry := map[string]any{
			"manager": manager, "operation": operation, "apiVersion": a.kind.gvk.GroupVersion().String(),
			"time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": set,
		}
		if subresource != "" {
			entry["subresource"] = subresource
		}
		entries = append(entries, entry)
	}
	tree.Object["metadata"].(map[string]any)["managedFields"] = entries
	h := history{subject: subject{kind: a.kind}, live: tree}
	h.store(t)
	if revision, ok := h.live.(*appsv1.ControllerRevision); ok {
		revision.Data.Raw = []byte(`{"b":1,"a":2}`) // as it was stored, in this order
	}
	return h.live
}
