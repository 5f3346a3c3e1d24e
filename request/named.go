package request

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"
)

// Named returns what a request asks for with the name that the field selector of a
// list or watch demands: authorization and audit take such a request for one about
// that object.
func Named(r *http.Request, i *Info) *Info {
	if i.Name != "" || i.Verb != "list" && i.Verb != "watch" || !strings.Contains(r.URL.RawQuery, "fieldSelector") {
		return i
	}
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return i
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok || len(path.IsValidPathSegmentName(name)) > 0 {
		return i
	}
	out := *i
	out.Name = name
	return &out
}
