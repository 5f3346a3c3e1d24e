package server

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/directory"
	"github.com/keelson-dev/keelson/discovery/openapi"
	"github.com/keelson-dev/keelson/features"
	"github.com/keelson-dev/keelson/resource"
)

// openDocuments returns the handler of the OpenAPI documents of what is served.
func (s *starting) openDocuments() (*openapi.Handler, error) {
	served := map[string]bool{}     // the paths of documents of groups and versions that are served
	builtIn := map[string]bool{}    // the paths of documents of all that could be
	hidden := map[string][]string{} // resources that are not served, by the path of their document
	for _, k := range resource.Kinds(features.All()) {
		for i := range k.Versions {
			gv := k.GroupVersion(&k.Versions[i])
			path := documentPath(gv)
			builtIn[path], builtIn["apis/"+gv.Group] = true, true
			found := s.api.resources.Find(gv.WithResource(k.Resource))
			if found == nil || found.Source != directory.BuiltIn {
				hidden[path] = append(hidden[path], k.Resource)
				continue
			}
			served[path], served["apis/"+gv.Group] = true, true
		}
	}
	return openapi.New(openapi.Options{
		Enabled: func(path string) bool { return served[path] || !builtIn[path] },
		Hidden:  hidden, Sources: []openapi.Source{s.api.custom.documents, s.api.aggregator},
	})
}

// documentPath returns the path of the OpenAPI v3 document of a version.
func documentPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}
