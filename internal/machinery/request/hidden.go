package request

import "slices"

// The group and version of the hidden resources, and of the answers of the hidden subresources.
const (
	HiddenGroup   = "history.keelson.dev"
	HiddenVersion = "v1alpha1"
)

// The hidden subresources. Each stored object has them, and GET is their only verb. Discovery shows neither them
// nor the hidden resources, because they are not part of the API of Kubernetes. To add one, add a row to
// hiddenSubresources and a function to hiddenVerbs in package rest.
const (
	SubresourceHistory  = "history"
	SubresourceBlockers = "blockers"
	SubresourceBlame    = "blame"
	SubresourceUndelete = "undelete"
	SubresourceRevert   = "revert"
)

// The hidden resources. ResourceChanges is in discovery if --runtime-config names it.
const (
	ResourceChanges  = "changes"
	ResourceUndelete = "undelete"
)

// HiddenSubresource is a subresource that all stored objects have.
type HiddenSubresource struct {
	Name string
	// ShowsObject means that the response may contain fields of the object. Audit rules for the object apply to
	// it, too.
	ShowsObject bool
	// ShowsOthers means that the answer may have other objects too, such as the Secrets in a Namespace.
	ShowsOthers bool
	// AsOf means that a request may ask for the past with the parameter asOf.
	AsOf bool
}

var hiddenSubresources = []HiddenSubresource{
	{Name: SubresourceHistory, ShowsObject: true},
	{Name: SubresourceBlockers},
	{Name: SubresourceBlame, ShowsObject: true, AsOf: true},
	{Name: SubresourceUndelete, ShowsObject: true, ShowsOthers: true, AsOf: true},
	{Name: SubresourceRevert, ShowsObject: true, AsOf: true},
}

// HiddenSubresources returns the hidden subresources. The caller must not change them.
func HiddenSubresources() []HiddenSubresource { return hiddenSubresources }

// FindHidden returns the hidden subresource of a name, nil if there is none.
func FindHidden(name string) *HiddenSubresource {
	if i := slices.IndexFunc(hiddenSubresources, func(s HiddenSubresource) bool { return s.Name == name }); i >= 0 {
		return &hiddenSubresources[i]
	}
	return nil
}

// ShowsOthers reports whether the response may contain objects of any resource, whatever resource the request
// names. It is also true for a GET of a subresource of the same name in an extension API server, because the path
// is the same.
func (i *Info) ShowsOthers() bool {
	if i.Group == HiddenGroup && i.Resource == ResourceUndelete {
		return true
	}
	hidden := FindHidden(i.Subresource)
	return hidden != nil && hidden.ShowsOthers && i.Verb == "get" && i.Name != "" && i.Rest == ""
}
