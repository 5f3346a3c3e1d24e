package server

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/changes"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource"
)

// openDocuments returns the handler of the OpenAPI documents of all served resources.
func (s *starting) openDocuments() (*openapi.Handler, error) {
	served := map[string]bool{}     // the paths of documents of groups and versions that are served
	builtIn := map[string]bool{}    // paths of documents of all built-in groups and versions
	hidden := map[string][]string{} // resources that are not served, by the path of their document
	for _, gvr := range everyResource() {
		gv := gvr.GroupVersion()
		path := documentPath(gv)
		builtIn[path], builtIn["apis/"+gv.Group] = true, true
		found := s.api.resources.Find(gvr)
		if found == nil || found.Source != directory.BuiltIn {
			hidden[path] = append(hidden[path], gvr.Resource)
			continue
		}
		served[path], served["apis/"+gv.Group] = true, true
	}
	version := ""
	if r := s.gates.Release(); r.Emulates() {
		version = r.String()
	}
	sources := []openapi.Source{s.api.custom.documents, s.api.aggregator}
	if r := s.api.resources.Find(changes.GVR); r != nil && !r.Hidden {
		sources = append(sources, changes.Documents)
	}
	return openapi.New(openapi.Options{
		Version: version,
		Enabled: func(path string) bool { return served[path] || !builtIn[path] },
		Hidden:  hidden, Sources: sources,
	})
}

// everyResource returns the built-in resources in all versions, with all feature gates. It must not be changed: the servers
// of a process share it.
var everyResource = sync.OnceValue(func() (all []schema.GroupVersionResource) {
	for _, k := range resource.Kinds(features.All()) {
		for i := range k.Versions {
			all = append(all, k.GroupVersion(&k.Versions[i]).WithResource(k.Resource))
		}
	}
	return all
})

// documentPath returns the path of the OpenAPI v3 document of a version.
func documentPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}
