package registry

import "context"

// Reencode decodes a stored value, without what reading adds to it, and encodes
// it again.
func (r *Resource) Reencode(value []byte) ([]byte, error) {
	obj, err := r.codec.reopen(value)
	if err != nil {
		return nil, err
	}
	return r.codec.encode(context.Background(), obj)
}

// reopen makes the object of a stored value alone.
func (c *codec) reopen(value []byte) (Object, error) {
	data, err := c.open(value)
	if err != nil {
		return nil, err
	}
	return c.decode(context.Background(), data)
}
