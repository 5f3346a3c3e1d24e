package apiextensions

import (
	"encoding/json"
	"slices"
	"testing"

	internalapi "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// TestStoredTwin compares the stored documents of recorded definitions with those
// of the API's own conversions, which go through the internal version.
func TestStoredTwin(t *testing.T) {
	for c := range readJudged(t, "testdata/causes.jsonl.gz") {
		if len(c.Causes) > 0 {
			continue
		}
		d := decodeDefinition(t, c.Object)
		rewriteValues(d, canonical) // as when it has been validated
		stored, err := encodeStored(d)
		if err != nil {
			t.Fatal(err)
		}
		var in internalapi.CustomResourceDefinition
		var out apiextensionsv1beta1.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d, &in,
			nil); err != nil {
			t.Fatal(err)
		}
		if err := apiextensionsv1beta1.Convert_apiextensions_CustomResourceDefinition_To_v1beta1_CustomResourceDefinition(&in,
			&out, nil); err != nil {
			t.Fatal(err)
		}
		out.APIVersion, out.Kind = "apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"
		want, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if string(stored) != string(want) {
			t.Errorf("%s: stored as\n%s\nwant\n%s", c.Name, stored, want)
		}
		checkReadBack(t, c.Name, stored)
	}
}

// checkReadBack compares what is read from a document with what the API's own
// conversions make of it.
func checkReadBack(t *testing.T, name string, document []byte) {
	got, err := decodeStored(document)
	if err != nil {
		t.Fatal(err)
	}
	var stored apiextensionsv1beta1.CustomResourceDefinition
	if err := json.Unmarshal(document, &stored); err != nil {
		t.Fatal(err)
	}
	var in internalapi.CustomResourceDefinition
	var want definition
	if err := apiextensionsv1beta1.Convert_v1beta1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		&stored, &in, nil); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(&in, &want,
		nil); err != nil {
		t.Fatal(err)
	}
	want.TypeMeta = got.(*definition).TypeMeta
	if !equality.Semantic.DeepEqual(got, &want) {
		t.Errorf("%s: read as\n%+v\nwant\n%+v", name, got, &want)
	}
}

func TestOldStoredDefinitions(t *testing.T) {
	obj, err := decodeStored(
		[]byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition",
		"metadata":{"name":"widgets.example.com"},
		"spec":{"group":"example.com","version":"v1","names":{"plural":"widgets","kind":"Widget"},
		"validation":{"openAPIV3Schema":{"type":"object"}},"conversion":{"strategy":"Webhook",
		"webhookClientConfig":{"service":{"namespace":"n","name":"s"}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	d := obj.(*definition)
	webhook := d.Spec.Conversion.Webhook
	switch {
	case d.Spec.Scope != "Namespaced", d.Spec.Names.Singular != "widget", d.Spec.Names.ListKind != "WidgetList",
		!d.Spec.PreserveUnknownFields, len(d.Status.StoredVersions) != 1:
		t.Errorf("read %+v", d)
	case len(d.Spec.Versions) != 1 || d.Spec.Versions[0].Name != "v1" || !d.Spec.Versions[0].Storage ||
		d.Spec.Versions[0].Schema == nil:
		t.Errorf("read versions %+v", d.Spec.Versions)
	case *webhook.ClientConfig.Service.Port != webhookPort || webhook.ConversionReviewVersions[0] != "v1beta1":
		t.Errorf("read webhook %+v", webhook)
	}
}

// TestValuesBecomeCanonical keeps a number that is an integer only once it is written
// until the definition is valid, and refuses one that is no number.
func TestValuesBecomeCanonical(t *testing.T) {
	d := decodeDefinition(t,
		[]byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","default":{ "b":1.0,"a":2 },
		"example":{ "b":1,"a":2 },"enum":[ 1e2, 1.50, 1E20, -0.0 ]}}}]}}`))
	s := schemaOf(&d.Spec.Versions[0])
	values := func() []string {
		out := []string{string(s.Default.Raw), string(s.Example.Raw)}
		for _, e := range s.Enum {
			out = append(out, string(e.Raw))
		}
		return out
	}
	if got, want := values(),
		[]string{`{ "b":1.0,"a":2 }`, `{"a":2,"b":1}`, "1e2", "1.5", "100000000000000000000", "-0.0"}; !slices.Equal(got,
		want) {
		t.Errorf("read as %q, want %q", got, want)
	}
	copied := d.DeepCopy()
	customResourceDefinition().Strategy.Canonicalize(copied)
	if got, want := string(s.Default.Raw), `{ "b":1.0,"a":2 }`; got != want {
		t.Errorf("with its copy the value became %s, want %s", got, want)
	}
	customResourceDefinition().Strategy.Canonicalize(d)
	if got, want := values(),
		[]string{`{"a":2,"b":1}`, `{"a":2,"b":1}`, "100", "1.5", "100000000000000000000", "-0"}; !slices.Equal(got, want) {
		t.Errorf("kept as %q, want %q", got, want)
	}
	version := servedVersion()
	if _, err := version.Coerce(d, false); err != nil {
		t.Error(err)
	}
	s.Enum[0].Raw = []byte("1e400")
	const want = "json: cannot unmarshal number 1e400 into Go value of type float64"
	if _, err := version.Coerce(d, false); err == nil || err.Error() != want {
		t.Errorf("read 1e400: %v, want %s", err, want)
	}
}
