package negotiate_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

var (
	object    = negotiate.Endpoint{Transforms: true}
	list      = negotiate.Endpoint{Transforms: true, List: true}
	watch     = negotiate.Endpoint{Transforms: true, List: true, Stream: true}
	untouched = negotiate.Endpoint{}
)

func accepting(header string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	if header != "" {
		r.Header.Set("Accept", header)
	}
	return r
}

// show writes an answer as a table row: the media type, the shape and, where that
// was asked for, "pretty".
func show(a negotiate.Accepted, err error) string {
	if err != nil {
		return "406"
	}
	out := strings.TrimPrefix(a.Media.String(), "application/")
	if a.As != negotiate.Plain {
		out += " " + kindOf(a.As) + " " + a.AsVersion
	}
	if a.Pretty {
		out += " pretty"
	}
	return out
}

const (
	protobuf   = "vnd.kubernetes.protobuf"
	kubectlGet = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io," +
		"application/json"
)

func TestResponse(t *testing.T) {
	for _, c := range []struct {
		accept string
		on     negotiate.Endpoint
		want   string
	}{
		// The supported media types.
		{"", object, "json"},
		{"*/*", object, "json"},
		{"application/json", object, "json"},
		{"application/yaml", object, "yaml"},
		{"application/vnd.kubernetes.protobuf", object, protobuf},
		{"application/*", object, "406"}, // kube-apiserver's router knows no ranges but */*
		{"application/*, */*", object, "json"},
		{"text/html", object, "406"},
		{"text/html, application/json;q=0.5", object, "json"},
		{"application/cbor", object, "406"},
		{"application/json;charset=utf-8", object, "json"},
		{" application/json ", object, "json"},

		// Preference: weight, then the more specific range, then the order.
		{"application/json;q=0.1, application/yaml;q=0.9", object, "yaml"},
		{"application/vnd.kubernetes.protobuf,application/json", object, protobuf},
		{"application/json,application/vnd.kubernetes.protobuf", object, "json"},
		{"*/*, application/yaml", object, "yaml"},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", object, "json"},

		// Shapes.
		{kubectlGet, object, "json Table v1"},
		{kubectlGet, list, "json Table v1"},
		{kubectlGet, watch, "json Table v1"},
		{kubectlGet, untouched, "json"},
		{"application/json;as=Table;v=v1beta1;g=meta.k8s.io", object, "json Table v1beta1"},
		{"application/json;as=Table;v=v1;g=meta.k8s.io", untouched, "406"},
		{"application/json;as=Table;v=v2;g=meta.k8s.io", object, "406"},
		{"application/json;as=Table;v=v1;g=example.com", object, "406"},
		{"application/json;as=Table;v=v1", object, "406"},
		{"application/json;as=Chair;v=v1;g=meta.k8s.io", object, "406"},
		{"application/json;v=v1;g=meta.k8s.io", object, "406"},
		{"application/json;as=Table;v=v2;g=meta.k8s.io, application/json", object, "json"},
		{"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", object, "406"},
		{"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io, application/json;as=Table;v=v1;g=meta.k8s.io",
			object, "json Table v1"},
		{"application/yaml;as=Table;v=v1;g=meta.k8s.io", list, "yaml Table v1"},
		{"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", object, "json PartialObjectMetadata v1"},
		{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", object, protobuf +
			" PartialObjectMetadata v1"},
		{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io", list, protobuf +
			" PartialObjectMetadataList v1beta1"},

		// Streams.
		{"application/json;stream=watch", watch, "json"},
		{"application/vnd.kubernetes.protobuf;stream=watch", watch, protobuf},
		{"application/vnd.kubernetes.protobuf;type=watch, application/json", watch, protobuf},
		{"application/json;stream=soup", watch, "406"},
		{"application/yaml", watch, "406"},
		{"application/yaml, application/json", watch, "json"},

		// Indented.
		{"application/json;pretty=1", object, "json pretty"},
		{"application/json;pretty=0", object, "json"},

		// Rubbish.
		{"application", object, "406"},
		{"/", object, "406"},
		{",", object, "406"},
		{";", object, "406"},
		{"application/json;;;=;q=q", object, "json"},
	} {
		if got := show(negotiate.Formats{}.Response(accepting(c.accept), c.on)); got != c.want {
			t.Errorf("%q of %+v: %s, want %s", c.accept, c.on, got, c.want)
		}
	}
}

func TestResponseWithCBOR(t *testing.T) {
	f := negotiate.Formats{CBOR: true}
	for _, c := range []struct {
		accept string
		on     negotiate.Endpoint
		want   string
	}{
		{"application/cbor", object, "cbor"},
		{"application/cbor, application/json", list, "cbor"},
		{"application/json, application/cbor", list, "json"},
		{"application/cbor-seq", watch, "cbor"},
		{"application/cbor", watch, "cbor"},
		{"application/cbor-seq", object, "406"},
		{"application/cbor;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", object, "cbor PartialObjectMetadata v1"},
	} {
		if got := show(f.Response(accepting(c.accept), c.on)); got != c.want {
			t.Errorf("%q of %+v: %s, want %s", c.accept, c.on, got, c.want)
		}
	}
}

// TestNotAcceptable checks that the error of a 406 names the supported media types.
func TestNotAcceptable(t *testing.T) {
	for _, c := range []struct {
		accept string
		on     negotiate.Endpoint
		want   string
	}{
		{
			"text/html", object,
			"406: Not Acceptable\n\nAvailable representations: application/json, application/yaml," +
				" application/vnd.kubernetes.protobuf",
		},
		{"text/html", list,
			"406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, " +
				"application/vnd.kubernetes.protobuf, application/json;stream=watch, " +
				"application/vnd.kubernetes.protobuf;stream=watch"},
		{"application/json;as=Table", object,
			"only the following media types are accepted: application/json, application/yaml, " +
				"application/vnd.kubernetes.protobuf"},
		{"application/yaml", watch,
			"only the following media types are accepted: application/json;stream=watch, " +
				"application/vnd.kubernetes.protobuf;stream=watch"},
	} {
		_, err := negotiate.Formats{}.Response(accepting(c.accept), c.on)
		if !kerrors.IsNotAcceptable(err) || err.Error() != c.want {
			t.Errorf("%q of %+v: %v\nwant %s", c.accept, c.on, err, c.want)
		}
	}
}

func TestBody(t *testing.T) {
	for header, want := range map[string]string{
		"": "json", "application/json": "json", "application/json; charset=utf-8": "json", "Application/JSON": "json",
		"application/yaml": "yaml", "application/vnd.kubernetes.protobuf": protobuf,
		"application/vnd.kubernetes.protobuf;charset=x": protobuf,
		"text/plain": "415", "application/x-www-form-urlencoded": "415", "application/json-patch+json": "415",
		"application/": "415", ";": "415",
		"application/json; charset": "415", "*/*": "415", "application/cbor": "415",
	} {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/pods", nil)
		r.Header.Set("Content-Type", header)
		m, err := negotiate.Formats{}.Body(r)
		got := strings.TrimPrefix(m.String(), "application/")
		if err != nil {
			got = "415"
			if !kerrors.IsUnsupportedMediaType(err) {
				t.Errorf("%q: %v", header, err)
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

// FuzzResponse: whatever is sent, the answer is a media type that the endpoint
// has, or 406.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{"", "*/*", kubectlGet, "a/b;q=1e999", "application/json;q=NaN,*/*", ";=,/;",
		"application/json;as=Table;v=v1;g=meta.k8s.io;as=Chair", "application/yaml;stream=watch"} {
		for i := range uint8(8) {
			f.Add(s, i)
		}
	}
	f.Fuzz(func(t *testing.T, header string, options uint8) {
		e := negotiate.Endpoint{List: options&1 > 0, Transforms: options&2 > 0, Stream: options&4 > 0}
		formats := negotiate.Formats{CBOR: options&8 > 0}
		a, err := formats.Response(accepting(header), e)
		switch {
		case err != nil && !kerrors.IsNotAcceptable(err):
			t.Fatalf("%v", err)
		case err != nil:
			return
		case a.Media == scheme.CBOR && !formats.CBOR:
			t.Fatal("CBOR is off")
		case e.Stream && a.Media == scheme.YAML:
			t.Fatal("a stream of YAML")
		case a.As != negotiate.Plain && !e.Transforms:
			t.Fatalf("%s where there are no shapes", kindOf(a.As))
		case a.As == negotiate.Table && a.Media == scheme.Protobuf:
			t.Fatal("a table in protobuf")
		case a.As != negotiate.Plain && a.AsVersion != "v1" && a.AsVersion != "v1beta1":
			t.Fatalf("version %q", a.AsVersion)
		}
	})
}

// kindOf returns the kind of a transform.
func kindOf(t negotiate.Transform) string {
	return [...]string{"", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"}[t]
}
