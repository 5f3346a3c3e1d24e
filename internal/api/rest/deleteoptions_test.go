package rest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// TestProtobufDeleteOptions sends an envelope of another kind and a broken envelope. The server must refuse both
// and delete nothing.
func TestProtobufDeleteOptions(t *testing.T) {
	body := func(kind string) []byte {
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}}
		b, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte(wire.EnvelopePrefix), b...)
	}
	for name, c := range map[string]struct {
		body []byte
		ok   bool
	}{
		"right":        {body("DeleteOptions"), true},
		"other kind":   {body("DeleteOption\x00"), false},
		"broken":       {append(body("DeleteOptions"), 0xff, 0xff), false},
		"without mark": {[]byte("{}"), false},
	} {
		if err := decodeDeleteOptions(scheme.Protobuf, c.body, &metav1.DeleteOptions{}); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
