package crd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
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

// TestEstablishedIsServed uses the resource of a definition as soon as a read shows it as established.
func TestEstablishedIsServed(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		group := fmt.Sprintf("e%d.example.com", i)
		w.must(201, "POST", definitions, asJSON, definition(group, versionOf("v1", "true", "size")))
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(
			w.must(200, "GET", definitions+"/widgets."+group, "", "").text, `"type":"Established"`,
		); {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not established", group)
			}
		}
		w.must(200, "GET", "/apis/"+group+"/v1/widgets", "", "")
	}
}
