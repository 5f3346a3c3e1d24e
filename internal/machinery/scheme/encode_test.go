package scheme

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEncodedHasNoRoomToGrow checks that encoded objects, which are cached, have no unused
// capacity.
func TestEncodedHasNoRoomToGrow(t *testing.T) {
	m := &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", 5000)}}
	for name, encode := range map[string]func() ([]byte, error){
		"EncodeItem":       func() ([]byte, error) { return EncodeItem(m) },
		"EncodeStoredItem": func() ([]byte, error) { return EncodeStoredItem(m) },
	} {
		b, err := encode()
		if err != nil || cap(b) > len(b)+len(b)/8 { // the allocator rounds up to its next size
			t.Errorf("%s: %d bytes in a buffer of %d, %v", name, len(b), cap(b), err)
		}
	}
}
