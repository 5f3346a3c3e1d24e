package registry

import (
	"context"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// Reencode decodes a stored value, without what reading adds to it, and encodes
// it again.
func (r *Resource) Reencode(value []byte) ([]byte, error) {
	data, err := r.bare(value)
	if err != nil {
		return nil, err
	}
	obj, err := r.codec.decode(context.Background(), data)
	if err != nil {
		return nil, err
	}
	return r.codec.value(context.Background(), obj)
}

// bare returns the data of a stored value without a resourceVersion.
func (r *Resource) bare(value []byte) ([]byte, error) {
	if _, ok := r.codec.encoding.(*protobufEncoding); ok {
		return wire.Raw(value)
	}
	return r.codec.unstamped(value)
}
