package request

import (
	"net/http/httptest"
	"testing"
)

func TestPathsAskForWhatAuthorizationIsAskedAbout(t *testing.T) {
	for line, want := range map[string]Info{
		"GET /api/v1/pods":             {Verb: "list", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch":       {Verb: "watch", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?w%61tch=1":   {Verb: "watch", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch=False": {Verb: "list", Version: "v1", Resource: "pods"},
		"HEAD /api/v1/namespaces/a/pods/p": {
			Verb: "get", Version: "v1", Namespace: "a", InNamespace: true, Resource: "pods", Name: "p",
		},
		"DELETE /apis/apps/v1/deployments": {
			Verb: "deletecollection", Group: "apps", Version: "v1", Resource: "deployments",
		},
		"TRACE /api/v1/nodes/n": {Verb: "", Version: "v1", Resource: "nodes", Name: "n"},
		"PUT /api/v1/namespaces/a/finalize": {
			Verb: "update", Version: "v1", Namespace: "a", Resource: "namespaces", Name: "a", Subresource: "finalize",
		},
		"GET /api/v1/namespaces/a/history": {
			Verb: "get", Version: "v1", Namespace: "a", Resource: "namespaces", Name: "a", Subresource: "history",
		},
		"GET /api/v1/namespaces/a/blockers": {
			Verb: "get", Version: "v1", Namespace: "a", Resource: "namespaces", Name: "a", Subresource: "blockers",
		},
		"GET /apis/example.com/v1/namespaces/a/history": {
			Verb: "list", Group: "example.com", Version: "v1", Namespace: "a", InNamespace: true, Resource: "history",
		},
		"POST /api/v1/namespaces/a/history": {
			Verb: "create", Version: "v1", Namespace: "a", InNamespace: true, Resource: "history",
		},
		"GET /api/v1/nodes/n/proxy/a/b": {
			Verb: "get", Version: "v1", Resource: "nodes", Name: "n", Subresource: "proxy", Rest: "a/b",
		},
		"POST /api/v1/watch/namespaces/a/pods/p": {
			Verb: "watch", Version: "v1", Namespace: "a", InNamespace: true, Resource: "pods", Name: "p", VerbInPath: true,
		},
		"GET /api/v1/proxy/nodes/n/x": {
			Verb: "proxy", Version: "v1", Resource: "nodes", Name: "n", VerbInPath: true,
		},
		"GET /api/v1//x": {Verb: "get", Version: "v1", Name: "x"},
		"GET /api/v1/namespaces/a": {
			Verb: "get", Version: "v1", Namespace: "a", Resource: "namespaces", Name: "a",
		},
		"GET /api/v1/namespaces/a/namespaces/a": {
			Verb: "get", Version: "v1", Namespace: "a", InNamespace: true, Resource: "namespaces", Name: "a",
		},
		"GET /apis/apps/v1/namespaces/a/status/b/c/d": {
			Verb: "get", Group: "apps", Version: "v1", Namespace: "a", Resource: "namespaces", Name: "a", Subresource: "status",
			Rest: "b/c/d",
		},
	} {
		method, url := cut(line)
		r := httptest.NewRequest(method, url, nil)
		want.Path, want.AsksResource = r.URL.Path, true
		if got := ParseInfo(r); *got != want || !got.IsResource() || got.Undetermined() {
			t.Errorf("%s: %+v, want %+v", line, *got, want)
		}
	}
	for _, path := range []string{
		"/", "/api", "/api/v1", "/apis/apps/v1", "/x/y/z", "/api/v1/watch", "/apis/apps/v1/proxy/",
	} {
		i := ParseInfo(httptest.NewRequest("GET", path, nil))
		if i.IsResource() {
			t.Errorf("%s: asks for a resource: %+v", path, *i)
		}
		if want := path == "/api/v1/watch" || path == "/apis/apps/v1/proxy/"; i.Undetermined() != want {
			t.Errorf("%s: undetermined %v", path, !want)
		}
	}
}

func TestAFieldSelectorNamesTheObject(t *testing.T) {
	for query, want := range map[string]string{
		"fieldSelector=metadata.name=a":                         "a",
		"fieldSelector=metadata.name%3Da,spec.x%3Dy&watch=1":    "a",
		"field%53elector=metadata.name=a":                       "a",
		"fieldSelector=metadata.name=a&limit=5&labelSelector=x": "a",
		"fieldSelector=metadata.name!=a":                        "",
		"fieldSelector=metadata.name=a%2Fb":                     "",
		"fieldSelector=metadata.name=..":                        "",
		"fieldSelector=metadata.name":                           "",
		"fieldSelector=metadata.name=a&limit=many":              "",
		"fieldSelector=metadata.name=a&limit=":                  "",
		"fieldSelector=metadata.name=a&timeoutSeconds=1s":       "",
		"fieldSelector=metadata.name=a&labelSelector=a===b":     "",
	} {
		r := httptest.NewRequest("GET", "/api/v1/namespaces/ns/configmaps?"+query, nil)
		if got := Named(r, ParseInfo(r)).Name; got != want {
			t.Errorf("%s: name %q, want %q", query, got, want)
		}
	}
	for _, line := range []string{
		"GET /api/v1/watch/configmaps?fieldSelector=metadata.name=a",
		"DELETE /api/v1/configmaps?fieldSelector=metadata.name=a",
		"POST /api/v1/configmaps?fieldSelector=metadata.name=a",
	} {
		method, url := cut(line)
		r := httptest.NewRequest(method, url, nil)
		if got := Named(r, ParseInfo(r)).Name; got != "" {
			t.Errorf("%s: is taken for one about %q", line, got)
		}
	}
}

func cut(line string) (method, url string) {
	for i := range line {
		if line[i] == ' ' {
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}
