package metrics

// bounded returns the label values of a request. What a client can make up is
// replaced: a request for a resource, a version or a subresource that is not served
// keeps its verb and its scope alone.
func (m *Metrics) bounded(r *Request) knownRequest {
	known := knownRequest{Verb: boundedVerb(r.Verb), Scope: boundedScope(r.Scope), DryRun: boundedDryRun(r.DryRun)}
	if r.Resource == "" {
		known.Path = boundedPath(r.Path)
		return known
	}
	name := r.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if m.known(r.Group, r.Version, name) {
		known.Group, known.Version, known.Resource, known.Subresource = r.Group, r.Version, r.Resource, r.Subresource
	}
	return known
}

// otherVerb stands for methods that the API does not have.
const otherVerb = "other"

func boundedVerb(verb string) string {
	switch verb {
	case "GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION", "HEAD", "OPTIONS", "CONNECT":
		return verb
	}
	return otherVerb
}

func boundedScope(scope string) string {
	switch scope {
	case "cluster", "namespace", "resource":
		return scope
	}
	return ""
}

func boundedDryRun(value string) string {
	switch value {
	case "", "All":
		return value
	}
	return "invalid"
}

// boundedPath returns the paths that are counted each by itself, "" for others.
func boundedPath(path string) string {
	switch path {
	case "/healthz", "/livez", "/readyz", "/version", "/metrics", "/api", "/apis", "/openapi/v2", "/openapi/v3":
		return path
	}
	return ""
}

// boundedCode returns a status code of HTTP, 0 for what is none.
func boundedCode(code int) int {
	const least, most = 100, 599
	if code < least || code > most {
		return 0
	}
	return code
}
