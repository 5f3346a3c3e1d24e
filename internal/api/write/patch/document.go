package patch

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// Patch is the body of a PATCH request other than a server-side apply.
type Patch struct {
	// Type is JSON patch, merge patch or strategic merge patch.
	Type       types.PatchType
	Body       []byte
	Validation Validation
}

// Document applies a JSON patch or a merge patch to a document, and decodes the result with d, whose New returns the
// object to decode into. prune, which may be nil, removes unknown fields from that object, and returns a strict error
// for each if track is set. Document returns the warnings for the client.
func (p Patch) Document(
	doc []byte, d scheme.Decoder, prune func(track bool) ([]error, error),
) (warnings []string, err error) {
	run := Merge
	if p.Type == types.JSONPatchType {
		run = JSON
	}
	after, strict, err := run(doc, p.Body, p.Validation)
	if err != nil {
		return nil, err
	}
	// The object stays empty. It has no name then, and the caller refuses it.
	if !d.Tree && hasNoVersion(after) {
		return unknownMembers(after), nil
	}
	track := p.Validation != Ignore
	more, err := d.DecodePatched(after, track)
	if err == nil && prune != nil {
		var unknown []error
		unknown, err = prune(track)
		more = append(more, unknown...)
	}
	if err == nil && len(more) > 0 {
		err = runtime.NewStrictDecodingError(more)
	}
	return Decoded(after, strict, err, p.Validation)
}

// hasNoVersion reports whether a document names a kind without an apiVersion. kube-apiserver then decodes it as
// an object of no kind: nothing in it is known, and the patched object is empty.
func hasNoVersion(doc []byte) bool {
	gvk, err := scheme.DocumentKind(doc)
	return err == nil && gvk.Version == "" && gvk.Group == "" && gvk.Kind != ""
}

// unknownMembers returns the warnings for the members of a document of no kind.
func unknownMembers(doc []byte) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal(doc, &members) != nil {
		return nil
	}
	var warnings []string
	for name := range members {
		if name != "kind" {
			warnings = append(warnings, fmt.Sprintf("unknown field %q", name))
		}
	}
	slices.Sort(warnings)
	return warnings
}
