package scheme

import (
	"bytes"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// TestMalformedEnvelopes refuses bodies whose envelope is malformed, with kube-apiserver's words.
func TestMalformedEnvelopes(t *testing.T) {
	lease := &coordinationv1.Lease{}
	lease.Name = "a"
	raw, err := EncodeProto(lease)
	if err != nil {
		t.Fatal(err)
	}
	right := wire.NewEnvelopeHead("coordination.k8s.io/v1", "Lease").Append(nil, raw)
	d := Decoder{GVK: coordinationv1.SchemeGroupVersion.WithKind("Lease"), Internal: "coordination.Lease",
		New: func() runtime.Object { return &coordinationv1.Lease{} }}
	for name, c := range map[string]struct {
		body []byte
		want string // "" accepts it
	}{
		"right":   {right, ""},
		"nothing": {nil, "empty data (<empty>)"},
		"another encoding": {[]byte("\x00{}"),
			"provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (007b7d)"},
		"prefix alone":     {[]byte("k8s\x00"), "empty body (6b387300)"},
		"length too large": {[]byte("k8s\x00\x0a\xff"), "unexpected EOF (6b3873000aff)"},
		"wire type":        {[]byte("k8s\x00\x0f"), "proto: wrong wireType = 7 for field TypeMeta (6b3873000f)"},
		"content type a number": {append(bytes.Clone(right), 0x20, 0x01),
			"proto: wrong wireType = 0 for field ContentType " +
				"(6b3873000a1f0a16636f6f7264696e6174696f6e2e6b38732e696f2f7631 ...)"},
		"end of a group": {[]byte("k8s\x00\x0a\x01\x0c"),
			"proto: TypeMeta: wiretype end group for non-group (6b3873000a010c)"},
	} {
		_, _, err := d.Decode(Protobuf, c.body, true)
		switch prefix := "the object provided is unrecognized (must be of type Lease): "; {
		case c.want == "":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case !kerrors.IsBadRequest(err) || err.Error() != prefix+c.want:
			t.Errorf("%s: %v\nwant %s%s", name, err, prefix, c.want)
		}
	}
}
