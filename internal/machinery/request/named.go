package request

import (
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/api/validation/path"
)

// Named returns i with the name that the field selector of a list or watch requires. Authorization and audit treat such
// a request as one for that object. i is returned unchanged if options cannot be parsed, if the path contains the verb
// watch, or if selectors are very long: such a request might be served for more objects than were authorized.
func Named(r *http.Request, i *Info) *Info {
	if i.Name != "" || i.VerbInPath || i.Verb != "list" && i.Verb != "watch" || !mayHave(r.URL.RawQuery, "fieldSelector") {
		return i
	}
	query := r.URL.Query()
	selector, err := FieldsBeforeAuthorization(query.Get("fieldSelector"))
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

// wellFormed reports whether the options labelSelector, limit and timeoutSeconds of a list can be parsed.
func wellFormed(query url.Values) bool {
	if _, err := beforeAuthorization().labels(query.Get("labelSelector")); err != nil {
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
