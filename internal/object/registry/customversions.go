package registry

// BindVersions binds the kinds of the versions of one custom resource to the store that place (see NewPlaced) returns.
// The caller may serve them; the registry does not keep them.
func (re *Registry) BindVersions(kinds []*Kind) ([]*Resource, error) {
	out := make([]*Resource, 0, len(kinds))
	for _, k := range kinds {
		on := re.place(k, Root+k.Storage.Path+"/")
		r, err := newResource(k, on, re.now)
		if err != nil {
			return nil, err
		}
		if re.transformer != nil {
			r.codec.transformer = re.transformer(k.GroupResource())
		}
		out = append(out, r)
	}
	return out, nil
}

// Unbind drops the objects of a resource of BindVersions from memory, for all versions of the custom resource. Watches
// end.
func (r *Resource) Unbind() {
	r.metrics.Unfollow(&r.cacheReader)
	r.all.Remove(r.prefix)
}
