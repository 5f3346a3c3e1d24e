package registry

import (
	"context"

	"github.com/keelson-dev/keelson/cache"
)

// GroupForm returns what make makes of a group of objects in the form id, from what
// is kept with the group where it is there.
func (r *Resource) GroupForm(g cache.Group, id cache.FormID, make func() ([]byte, error)) ([]byte, error) {
	return r.cache.GroupForm(g, id, make)
}

// AskedAgain says whether groups were asked for as this form before, not long ago,
// and notes that they are now.
func (r *Resource) AskedAgain(id cache.FormID) bool { return r.cache.AskedAgain(id) }

// ItemForm returns the form of items in version v, as JSON or as protobuf messages.
func (r *Resource) ItemForm(v *Version, proto bool) cache.FormID {
	if proto {
		return r.protoForm(v)
	}
	return r.codec.jsonForm(v)
}

// ItemJSONOnce is ItemJSON for a single use: what is not kept yet is not kept then.
func (r *Resource) ItemJSONOnce(ctx context.Context, o *cache.Object, v *Version) ([]byte, error) {
	if o.Err() == nil && r.codec.isJSON(o.Data, v) {
		return o.Data, nil
	}
	if data, ok := o.Kept(r.codec.jsonForm(v)); ok {
		return data, nil
	}
	return r.encodeItem(ctx, o, v)
}
