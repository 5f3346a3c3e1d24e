package crd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

const asApply = "application/apply-patch+yaml"

// TestAppliedFieldsAreRead applies unknown fields to an object whose schema knows one field of spec and has a
// default in status. Apply accepts unknown fields in an object without properties, but they are neither returned
// nor stored. The default of the status is returned, by a dry run too.
func TestAppliedFieldsAreRead(t *testing.T) {
	w := newWorld(t)
	const group = "applied.example.com"
	w.must(201, "POST", definitions, asJSON, definition(group, `{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","properties":{"empty":{"type":"object"},"any":{"x-kubernetes-preserve-unknown-fields":true}}},
		"status":{"type":"object","default":{"phase":"Waiting"},"properties":{"phase":{"type":"string"}}}}}}}`))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	body := widget(group, "v1", "a", `{"empty":{"unknown":"x"},"any":null}`)
	spec, status := map[string]any{"empty": map[string]any{}}, map[string]any{"phase": "Waiting"}
	for _, a := range []struct {
		how  string
		what answer
	}{
		{"dry create", w.must(201, "POST", path+"?dryRun=All", asJSON, body)},
		{"dry apply", w.must(201, "PATCH", path+"/a?fieldManager=m&dryRun=All", asApply, body)},
		{"apply", w.must(201, "PATCH", path+"/a?fieldManager=m", asApply, body)},
		{"read", w.must(200, "GET", path+"/a", "", "")},
		{"dry apply again", w.must(200, "PATCH", path+"/a?fieldManager=n&force=true&dryRun=All", asApply, body)},
	} {
		if !reflect.DeepEqual(a.what.body["spec"], spec) || !reflect.DeepEqual(a.what.body["status"], status) {
			t.Errorf("%s: %s", a.how, a.what.text)
		}
	}
	e, _, err := w.store.Get(t.Context(), "/registry/"+group+"/widgets/x/a", 0)
	if err != nil {
		t.Fatal(err)
	}
	var stored map[string]any
	if err := json.Unmarshal(e.Value, &stored); err != nil {
		t.Fatal(err)
	}
	// The ownership of the unknown field stays in managedFields.
	if !reflect.DeepEqual(stored["spec"], spec) || stored["status"] != nil ||
		!bytes.Contains(e.Value, []byte(`"f:unknown"`)) {
		t.Errorf("stored %s", e.Value)
	}
}

// TestApplyOfEmptyMap applies a configuration with {} in place of a map that had members in the configuration
// before. kube-apiserver answers 422, except where null is allowed.
func TestApplyOfEmptyMap(t *testing.T) {
	w := newWorld(t)
	const group = "emptied.example.com"
	const texts = `"additionalProperties":{"type":"string"}`
	w.must(201, "POST", definitions, asJSON, definition(group, `{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","properties":{
			"map":{"type":"object",`+texts+`},
			"nullable":{"type":"object","nullable":true,`+texts+`},
			"default":{"type":"object","default":{"z":"1"},`+texts+`},
			"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
			"object":{"type":"object","properties":{"name":{"type":"string"},"map":{"type":"object",`+texts+`}}},
			"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name","kind"],"items":{
				"type":"object","required":["name"],"properties":{
					"name":{"type":"string"},"kind":{"type":"string","default":"k"},"map":{"type":"object",`+texts+`}}}}}}}}}}`))
	const path = "/apis/" + group + "/v1/namespaces/x/widgets"
	w.await(200, path)
	for i, c := range []struct{ before, applied, want string }{
		{`{"map":{"a":"x"}}`, `{"map":{}}`, `{"map":{}}`},
		{`{"map":{"a":"x"}}`, `{"map":null}`, ""},
		{`{"nullable":{"a":"x"}}`, `{"nullable":{}}`, `{"nullable":null}`},
		{`{"default":{"a":"x"}}`, `{"default":{}}`, `{"default":{"z":"1"}}`},
		{`{"any":{"a":{"b":1}}}`, `{"any":{}}`, `{"any":{}}`},
		{`{"object":{"name":"n","map":{"a":"x"}}}`, `{"object":{}}`, `{"object":{}}`},
		{`{"object":{"name":"n","map":{"a":"x"}}}`, `{"object":{"name":"n","map":{}}}`, `{"object":{"name":"n","map":{}}}`},
		{`{"list":[{"name":"a"},{"name":"b","map":{"a":"x"}}]}`, `{"list":[{"name":"b","map":{}}]}`,
			`{"list":[{"name":"b","kind":"k","map":{}}]}`},
	} {
		object := fmt.Sprintf("%s/o%d", path, i)
		apply := func(code int, spec string) answer {
			t.Helper()
			return w.must(code, "PATCH", object+"?fieldManager=m", asApply, widget(group, "v1", object[len(path)+1:], spec))
		}
		apply(201, c.before)
		if c.want == "" {
			apply(422, c.applied)
			continue
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if want["default"] == nil {
			want["default"] = map[string]any{"z": "1"}
		}
		if got := apply(200, c.applied).body["spec"]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s after %s: %v, want %v", c.applied, c.before, got, want)
		}
		if got := w.must(200, "GET", object, "", "").body["spec"]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s after %s is read as %v, want %v", c.applied, c.before, got, want)
		}
	}
}

// TestEstablishedIsServed uses the resource of a definition as soon as a read shows it as established.
func TestEstablishedIsServed(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		group := fmt.Sprintf("e%d.example.com", i)
		w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
		wait.Until(t, group+" to be established", func() bool {
			return strings.Contains(w.must(200, "GET", definitions+"/widgets."+group, "", "").text, `"type":"Established"`)
		})
		w.must(200, "GET", "/apis/"+group+"/v1/widgets", "", "")
	}
}

// TestManagersOfVersionsThatAreGone writes to objects whose managedFields name v1, after v1 is no longer served,
// and after the definition no longer has it. While the definition has v1, served or not, an apply that would need
// its fields is refused, and any other write leaves the managedFields as they are. Once v1 is removed, the next
// write drops the managedFields of v1. Otherwise no client could apply to the object any more.
func TestManagersOfVersionsThatAreGone(t *testing.T) {
	w := newWorld(t)
	const group = "gone.example.com"
	version := func(name, served, storage, extra string) string {
		return fmt.Sprintf(`{"name":%q,"served":%s,"storage":%s,"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":{"type":"object","properties":{"color":{"type":"string"}%s}}}}}}`, name, served, storage, extra)
	}
	const extra = `,"extra":{"type":"string","default":"x"}`
	w.must(201, "POST", definitions, asJSON, definition(group, version("v1", "true", "true", "")))
	const v1, v2 = "/apis/" + group + "/v1/namespaces/x/widgets", "/apis/" + group + "/v2/namespaces/x/widgets"
	w.await(200, v1)
	for _, name := range []string{"a", "b", "c"} {
		w.must(201, "PATCH", v1+"/"+name+"?fieldManager=old", asApply, widget(group, "v1", name, `{"color":"red"}`))
	}
	change := func(versions string) {
		w.must(200, "PATCH", definitions+"/widgets."+group, asMerge, `{"spec":{"versions":[`+versions+`]}}`)
	}
	apply := func(want int, text, name string) {
		t.Helper()
		a := w.must(want, "PATCH", v2+"/"+name+"?fieldManager=new", asApply, widget(group, "v2", name, `{"color":"red"}`))
		if want != 200 && (a.body["message"] != text || a.body["reason"] != nil) {
			t.Errorf("%s", a.text)
		}
	}
	keepsManagers := func(name string) {
		t.Helper()
		a := w.must(200, "PATCH", v2+"/"+name+"?fieldManager=new", asMerge, `{"metadata":{"labels":{"a":"b"}}}`)
		if !strings.Contains(a.text, `"manager":"old","operation":"Apply"`) {
			t.Errorf("%s", a.text)
		}
	}

	change(version("v1", "false", "false", "") + "," + version("v2", "true", "true", ""))
	w.await(404, v1)
	w.await(200, v2)
	for _, name := range []string{"a", "b", "c"} {
		apply(200, "", name) // both versions declare what the object has, and it is stored as v2 now
	}
	change(version("v1", "false", "false", "") + "," + version("v2", "true", "true", extra))
	wait.Until(t, "the default of the new definition", func() bool { return strings.Contains(w.get(v2+"/a").text, `"extra"`) })
	apply(500, ".spec.extra: field not declared in schema", "b")
	keepsManagers("b")

	w.must(200, "PATCH", definitions+"/widgets."+group+"/status", asMerge, `{"status":{"storedVersions":["v2"]}}`)
	change(version("v2", "true", "true", extra))
	const old = `"manager":"old","operation":"Apply"`
	wait.Seen(t, "the definition without v1 to take effect", func() (bool, string) {
		a := w.do("PATCH", v2+"/c?fieldManager=new", asApply, widget(group, "v2", "c", `{"color":"red"}`))
		return !strings.Contains(a.text, old) && strings.Contains(a.text, `"manager":"new","operation":"Apply"`), a.text
	})
	a := w.must(200, "PATCH", v2+"/b?fieldManager=new", asMerge, `{"metadata":{"labels":{"a":"c"}}}`)
	if strings.Contains(a.text, old) || !strings.Contains(a.text, `"manager":"new","operation":"Apply"`) ||
		!strings.Contains(a.text, `"manager":"new","operation":"Update"`) {
		t.Errorf("after a patch without v1: %s", a.text)
	}
	apply(200, "", "b")
}
