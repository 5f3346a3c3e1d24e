package request

import (
	"errors"
	"io"
	"testing"
)

func TestBody(t *testing.T) {
	broken := errors.New("broken")
	for _, end := range []error{nil, broken} {
		read, err := io.ReadAll(NewBody([]byte("abc"), end))
		if string(read) != "abc" || !errors.Is(err, end) {
			t.Errorf("read %q, %v, want the error %v", read, err, end)
		}
		b := NewBody([]byte("abc"), end)
		taken, err := b.Take()
		if string(taken) != "abc" || !errors.Is(err, end) {
			t.Errorf("taken %q, %v, want the error %v", taken, err, end)
		}
		if b.content != nil || b.Len() != 0 {
			t.Errorf("the body keeps %q and %d bytes after it was taken", b.content, b.Len())
		}
	}
}
