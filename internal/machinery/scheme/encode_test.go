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
	b, err := EncodeItem(m)
	if err != nil || cap(b) > len(b)+len(b)/8 { // the allocator rounds up to its next size
		t.Errorf("%d bytes in a buffer of %d, %v", len(b), cap(b), err)
	}
}
