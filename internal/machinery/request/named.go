package request

import (
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/api/validation/path"
)

// Named returns what a request asks for with the name that the field selector of a
// list or watch demands: authorization and audit take such a request for one about
// that object. A request whose options cannot be understood, or whose path says
// that it is a watch, or whose selectors are very long, demands no name: what cannot be served as it was authorized
// must not be authorized as more narrow than it is.
func Named(r *http.Request, i *Info) *Info {
	if i.Name != "" || i.VerbInPath || i.Verb != "list" && i.Verb != "watch" || !mayHave(r.URL.RawQuery, "fieldSelector") {
		return i
	}
	query := r.URL.Query()
	selector, err := beforeAuthorization().Fields(query.Get("fieldSelector"))
	if err != nil {
		return i
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok || len(path.IsValidPathSegmentName(name)) > 0 || !wellFormed(query) {
		return i
	}
	out := *i
	out.Name = name
	return &out
}

// wellFormed says whether those options of a list that are no plain texts can be
// read.
func wellFormed(query url.Values) bool {
	if _, err := beforeAuthorization().Labels(query.Get("labelSelector")); err != nil {
		return false
	}
	for _, number := range []string{"limit", "timeoutSeconds"} {
		if values := query[number]; len(values) > 0 {
			if _, err := strconv.ParseInt(values[0], 10, 64); err != nil {
				return false
			}
		}
	}
	return true
}
