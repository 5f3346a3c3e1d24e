// Package negotiate chooses the encodings of requests and responses from the headers Accept (RFC 9110 section
// 12.5) and Content-Type.
package negotiate

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Transform is another shape that a client wants objects in (the "as" parameter).
type Transform int

const (
	Plain Transform = iota
	Table
	PartialMetadata
	PartialMetadataList
)

// Accepted is the result of negotiation: the form of a response.
type Accepted struct {
	Media scheme.Media
	// As is the shape, AsVersion its version in meta.k8s.io ("v1", "v1beta1").
	As        Transform
	AsVersion string
	// Pretty indents JSON.
	Pretty bool
}

// Formats are the encodings that the server speaks: JSON, YAML, protobuf and,
// where it is turned on, CBOR.
type Formats struct{ CBOR bool }

// media returns the encodings in the order of preference. A range such as application/* matches all of them and
// gets JSON.
func (f Formats) media() []scheme.Media {
	if f.CBOR {
		return []scheme.Media{scheme.JSON, scheme.YAML, scheme.Protobuf, scheme.CBOR}
	}
	return []scheme.Media{scheme.JSON, scheme.YAML, scheme.Protobuf}
}

// types lists the media types for messages.
func (f Formats) types() []string {
	var types []string
	for _, m := range f.media() {
		types = append(types, m.String())
	}
	return types
}

// streamTypes returns the media types that only a watch can use. The error of a list names them too, because a
// watch has the same path.
func (f Formats) streamTypes() []string {
	types := []string{scheme.TypeJSON + ";stream=watch", scheme.TypeProtobuf + ";stream=watch"}
	if f.CBOR {
		types = append(types, scheme.TypeCBORSequence)
	}
	return types
}

// Endpoint describes the possible responses of a path.
type Endpoint struct {
	// Text means that the response is a text. As in kube-apiserver, the Accept header must still allow the type of an API
	// object, because an error response is a Status object.
	Text bool
	// List adds the streaming types to the message of a failure.
	List bool
	// Transforms allows Table and PartialObjectMetadata.
	Transforms bool
	// NoTable means that there are no columns, so that the response cannot be a Table.
	NoTable bool
	// Stream demands a streaming encoding.
	Stream bool
	// Unstructured means that the objects are custom resources: only their metadata has a
	// protobuf encoding.
	Unstructured bool
}

// Response chooses the encoding of the response to r.
func (f Formats) Response(r *http.Request, e Endpoint) (Accepted, error) {
	header := r.Header.Get("Accept")
	pretty := apiresponse.WantsPretty(r)
	if header == "" || header == scheme.TypeJSON || header == "*/*" {
		return Accepted{Media: scheme.JSON, Pretty: pretty}, nil
	}
	if header == scheme.TypeProtobuf && !e.Unstructured {
		return Accepted{Media: scheme.Protobuf}, nil
	}
	if !e.Unstructured && !f.producible(header, e) {
		return Accepted{}, f.notProducible(e)
	}
	clauses := apiresponse.ParseAccept(header)
	for i := range clauses {
		for _, m := range f.media() {
			if !clauses[i].Matches(m.String()) && !(e.Stream && m == scheme.CBOR && clauses[i].Matches(scheme.TypeCBORSequence)) {
				continue
			}
			if a, ok := accept(&clauses[i], m, e); ok {
				a.Pretty = a.Pretty || pretty
				return a, nil
			}
		}
	}
	types := f.types()
	if e.Stream {
		// If the header does not even allow an ordinary response, the error is the one for ordinary responses.
		e.Stream = false
		if _, err := f.Response(r, e); err != nil {
			return Accepted{}, err
		}
		types = f.streamTypes()
	}
	return Accepted{}, apierr.NotAcceptable("only the following media types are accepted: " + strings.Join(types, ", "))
}

// producible reports whether any media type in the header, without its parameters, is supported. This is the
// check of the router in kube-apiserver, which comes before its handlers. It does not know parameters, so
// application/json;as=Table passes.
func (f Formats) producible(header string, e Endpoint) bool {
	types := f.types()
	if e.Text {
		types = append(types, "text/plain")
	}
	if e.List && f.CBOR {
		types = append(types, scheme.TypeCBORSequence)
	}
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		name = strings.TrimSpace(name)
		if name == "*/*" || slices.Contains(types, name) {
			return true
		}
	}
	return false
}

func (f Formats) notProducible(e Endpoint) error {
	types := f.types()
	if e.Text {
		types = append([]string{"text/plain"}, types...)
	}
	if e.List {
		types = append(types, f.streamTypes()...)
	}
	return apierr.WithEmptyDetails(
		apierr.NotAcceptable("406: Not Acceptable\n\nAvailable representations: " + strings.Join(types, ", ")),
	)
}

// accept returns the form of a response in media type m for one media range of the Accept header. It returns false
// if the parameters of the range exclude it.
func accept(c *apiresponse.MediaRange, m scheme.Media, e Endpoint) (Accepted, bool) {
	a := Accepted{Media: m}
	// A stream of YAML documents has no frames, so a watch cannot be YAML.
	if e.Stream && m == scheme.YAML {
		return a, false
	}
	a.Pretty = c.Params["pretty"] == "1"
	if stream := c.Params["stream"]; stream != "" && (stream != "watch" || m == scheme.YAML) {
		return a, false
	}
	if !c.RequestsConversion() {
		return a, !e.Unstructured || m != scheme.Protobuf
	}
	// kubectl sends several ranges: a Table in v1, a Table in v1beta1, and plain JSON. The first one that a path
	// can answer counts.
	version := c.Params["v"]
	if !e.Transforms || c.Params["g"] != "meta.k8s.io" || version != "v1" && version != "v1beta1" {
		return a, false
	}
	a.AsVersion = version
	switch c.Params["as"] {
	// Cells have no fixed type, so a Table has no protobuf encoding.
	case "Table":
		a.As = Table
		return a, m != scheme.Protobuf && !e.NoTable
	case "PartialObjectMetadata":
		a.As = PartialMetadata
	case "PartialObjectMetadataList":
		a.As = PartialMetadataList
	default:
		return a, false
	}
	return a, true
}

// Body returns the encoding of the request's body. Without a Content-Type the body is JSON.
func (f Formats) Body(r *http.Request) (scheme.Media, error) {
	header := r.Header.Get("Content-Type")
	if header == "" || header == scheme.TypeJSON {
		return scheme.JSON, nil
	}
	mediaType, _, err := mime.ParseMediaType(header)
	if err == nil {
		switch mediaType {
		case scheme.TypeJSON:
			return scheme.JSON, nil
		case scheme.TypeYAML:
			return scheme.YAML, nil
		case scheme.TypeProtobuf:
			return scheme.Protobuf, nil
		case scheme.TypeCBOR:
			if f.CBOR {
				return scheme.CBOR, nil
			}
		}
	}
	return scheme.JSON, apierr.UnsupportedMediaType(f.types())
}
