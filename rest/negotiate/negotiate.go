// Package negotiate reads Accept and Content-Type headers (RFC 9110 section 12.5)
// into the encodings that the server speaks.
package negotiate

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/scheme"
)

// Transform is another shape that a client wants objects in (the "as" parameter).
type Transform int

const (
	Plain Transform = iota
	Table
	PartialMetadata
	PartialMetadataList
)

// Kind is the transform's kind.
func (t Transform) Kind() string {
	return [...]string{"", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"}[t]
}

// Accepted is what a response will be encoded as.
type Accepted struct {
	Media scheme.Media
	// As is the shape, AsVersion its version in meta.k8s.io ("v1", "v1beta1").
	As        Transform
	AsVersion string
	// Pretty indents JSON.
	Pretty bool
}

// Produces are the media types of ordinary requests.
var Produces = []string{scheme.TypeJSON, scheme.TypeYAML, scheme.TypeProtobuf}

// streamTypes are what a list request may produce beyond Produces: it may be a
// watch.
var streamTypes = []string{scheme.TypeJSON + ";stream=watch", scheme.TypeProtobuf + ";stream=watch"}

// Endpoint says what a path can answer.
type Endpoint struct {
	// List adds the streaming types to the message of a failure.
	List bool
	// Transforms allows Table and PartialObjectMetadata.
	Transforms bool
	// Stream demands a streaming encoding.
	Stream bool
}

// Response chooses the encoding of the response to r.
func Response(r *http.Request, e Endpoint) (Accepted, error) {
	header := r.Header.Get("Accept")
	pretty := wantsPretty(r)
	if header == "" || header == scheme.TypeJSON || header == "*/*" {
		return Accepted{Media: scheme.JSON, Pretty: pretty}, nil
	}
	if header == scheme.TypeProtobuf {
		return Accepted{Media: scheme.Protobuf}, nil
	}
	if !producible(header) {
		return Accepted{}, notProducible(e)
	}
	for _, c := range parse(header) {
		for _, m := range []scheme.Media{scheme.JSON, scheme.YAML, scheme.Protobuf} {
			if !c.matches(m.String()) {
				continue
			}
			if a, ok := c.accept(m, e); ok {
				a.Pretty = a.Pretty || pretty
				return a, nil
			}
		}
	}
	if e.Stream {
		return Accepted{}, apierr.NotAcceptable("only the following media types are accepted: " + strings.Join(streamTypes, ", "))
	}
	return Accepted{}, apierr.NotAcceptable("only the following media types are accepted: " + strings.Join(Produces, ", "))
}

// ForError chooses the encoding of an error: what was asked for where possible,
// JSON otherwise.
func ForError(r *http.Request) Accepted {
	a, err := Response(r, Endpoint{Transforms: true})
	if err != nil {
		a = Accepted{}
	}
	return Accepted{Media: a.Media, Pretty: a.Pretty}
}

// wantsPretty follows the pretty parameter and, without it, the clients that a
// person reads from.
func wantsPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if v, ok := r.URL.Query()["pretty"]; ok && len(v) > 0 {
			if v[0] == "" {
				return true
			}
			on, _ := strconv.ParseBool(v[0])
			return on
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// producible says whether any media type in the header, parameters aside, is one
// of ours.
func producible(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		name = strings.TrimSpace(name)
		if name == "*/*" || slices.Contains(Produces, name) {
			return true
		}
	}
	return false
}

func notProducible(e Endpoint) error {
	types := Produces
	if e.List {
		types = append(slices.Clone(Produces), streamTypes...)
	}
	return apierr.WithEmptyDetails(apierr.NotAcceptable("406: Not Acceptable\n\nAvailable representations: " + strings.Join(types, ", ")))
}

// clause is one media range of an Accept header.
type clause struct {
	kind, subtype string
	params        map[string]string
	q             float64
}

func parse(header string) []clause {
	var out []clause
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimSpace(part)
		name, rest, _ := strings.Cut(part, ";")
		kind, subtype, ok := strings.Cut(strings.TrimSpace(name), "/")
		if !ok {
			if strings.TrimSpace(name) != "*" {
				continue
			}
			kind, subtype = "*", "*"
		}
		c := clause{kind: strings.TrimSpace(kind), subtype: strings.TrimSpace(subtype), q: 1, params: map[string]string{}}
		for p := range strings.SplitSeq(rest, ";") {
			k, v, ok := strings.Cut(p, "=")
			if !ok {
				continue
			}
			k, v = strings.TrimSpace(k), strings.Trim(strings.TrimSpace(v), `"`)
			if k == "q" {
				c.q, _ = strconv.ParseFloat(v, 64)
				continue
			}
			c.params[k] = v
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b clause) int {
		switch {
		case a.q != b.q:
			if a.q > b.q {
				return -1
			}
			return 1
		case (a.kind == "*") != (b.kind == "*"):
			if b.kind == "*" {
				return -1
			}
			return 1
		case (a.subtype == "*") != (b.subtype == "*"):
			if b.subtype == "*" {
				return -1
			}
			return 1
		}
		return 0
	})
	return out
}

func (c clause) matches(mediaType string) bool {
	kind, subtype, _ := strings.Cut(mediaType, "/")
	return (c.kind == "*" || c.kind == kind) && (c.subtype == "*" || c.subtype == subtype)
}

// accept reads the clause's parameters for a media type.
func (c clause) accept(m scheme.Media, e Endpoint) (Accepted, bool) {
	a := Accepted{Media: m}
	if e.Stream && m == scheme.YAML {
		return a, false
	}
	var as, group, version string
	for k, v := range c.params {
		switch k {
		case "as":
			as = v
		case "g":
			group = v
		case "v":
			version = v
		case "pretty":
			a.Pretty = v == "1"
		case "stream":
			if v != "" && (v != "watch" || m == scheme.YAML) {
				return a, false
			}
		}
	}
	if as == "" && group == "" && version == "" {
		return a, true
	}
	if !e.Transforms || group != "meta.k8s.io" || version != "v1" && version != "v1beta1" {
		return a, false
	}
	a.AsVersion = version
	switch as {
	case "Table":
		a.As = Table
		return a, m != scheme.Protobuf
	case "PartialObjectMetadata":
		a.As = PartialMetadata
	case "PartialObjectMetadataList":
		a.As = PartialMetadataList
	default:
		return a, false
	}
	return a, true
}

// Body returns the encoding of the request's body.
func Body(r *http.Request) (scheme.Media, error) {
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
		}
	}
	return scheme.JSON, apierr.UnsupportedMediaType(Produces)
}
