// Package openapi makes the OpenAPI documents of custom resources: a version 3 document for each group and
// version, and the part that they add to the version 2 document.
//
// A document is built when it is requested, from the JSON of the definitions. The Source keeps only this JSON,
// which its caller keeps anyway, and its hash. So the list of documents of thousands of definitions is available
// at once, and a change only costs work for the changed documents.
//
// Files, in the order to read them: source.go (which documents exist), resource.go (reading a definition),
// paths.go (the operations of a resource), schema.go (its schema), document.go (the JSON of both versions),
// shared.go (built-in definitions).
package openapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi"
	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// A Definition is the part of a CustomResourceDefinition that is published.
type Definition struct {
	// Name is the name of the definition, such as "crontabs.stable.example.com".
	Name  string
	Group string
	// Versions are the served versions.
	Versions []string
	// Spec is the specification as JSON.
	Spec string
	// NonStructural means that the condition NonStructuralSchema is true, so the schemas are not published.
	NonStructural bool
}

// A Source is an openapi.Source of custom resources.
type Source struct {
	builtin *archive.Archive

	// shared returns the built-in definitions of version 3 documents; the first call reads them.
	shared func() (*sharedDefinitions, error)

	mu        sync.Mutex
	byName    map[string]*definition                         // guarded by mu
	groups    map[schema.GroupVersion]map[string]*definition // guarded by mu; by name of the definition
	changed   map[schema.GroupVersion]bool                   // guarded by mu; not applied to documents yet
	documents []openapi.Document                             // guarded by mu; sorted by path; replaced, never changed
}

// definition is a published Definition with the hash of its Spec.
type definition struct {
	Definition
	sum [sha256.Size]byte
}

// New returns a Source without definitions. builtin are the documents of the built-in groups.
func New(builtin *archive.Archive) *Source {
	s := &Source{
		builtin: builtin,
		byName:  map[string]*definition{},
		groups:  map[schema.GroupVersion]map[string]*definition{},
		changed: map[schema.GroupVersion]bool{},
	}
	s.shared = sync.OnceValues(func() (*sharedDefinitions, error) { return readShared(builtin) })
	return s
}

// Set publishes a definition, and replaces one of the same name.
func (s *Source) Set(d Definition) {
	n := &definition{Definition: d, sum: sha256.Sum256([]byte(d.Spec))}
	n.Versions = slices.Clone(d.Versions)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.byName[d.Name]; old != nil {
		if old.sum == n.sum && old.NonStructural == n.NonStructural && old.Group == n.Group &&
			slices.Equal(old.Versions, n.Versions) {
			return
		}
		s.removeLocked(old)
	}
	s.byName[d.Name] = n
	for _, v := range n.Versions {
		gv := schema.GroupVersion{Group: n.Group, Version: v}
		if s.groups[gv] == nil {
			s.groups[gv] = map[string]*definition{}
		}
		s.groups[gv][n.Name] = n
		s.changed[gv] = true
	}
}

// Remove removes the published definition of that name, if there is one.
func (s *Source) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.byName[name]; old != nil {
		s.removeLocked(old)
	}
}

func (s *Source) removeLocked(d *definition) {
	delete(s.byName, d.Name)
	for _, v := range d.Versions {
		gv := schema.GroupVersion{Group: d.Group, Version: v}
		delete(s.groups[gv], d.Name)
		if len(s.groups[gv]) == 0 {
			delete(s.groups, gv)
		}
		s.changed[gv] = true
	}
}

// Documents implements openapi.Source.
func (s *Source) Documents() []openapi.Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changed) > 0 {
		s.updateLocked()
	}
	return s.documents
}

// updateLocked applies the changes to the list of documents. The caller holds mu.
func (s *Source) updateLocked() {
	documents := make([]openapi.Document, 0, max(len(s.groups), len(s.documents)))
	byPath := func(a, b openapi.Document) int { return cmp.Compare(a.Path, b.Path) }
	var added []openapi.Document
	paths := make(map[string]bool, len(s.changed))
	for gv := range s.changed {
		path := pathOf(gv)
		paths[path] = true
		if len(s.groups[gv]) > 0 {
			added = append(added, openapi.Document{Path: path, ETag: s.etagLocked(gv)})
		}
	}
	slices.SortFunc(added, byPath)
	for _, d := range s.documents {
		for len(added) > 0 && added[0].Path < d.Path {
			documents, added = append(documents, added[0]), added[1:]
		}
		if !paths[d.Path] {
			documents = append(documents, d)
		}
	}
	s.documents = append(documents, added...)
	clear(s.changed)
}

// documentFormat is part of every ETag. It must be changed when the document of an unchanged definition changes.
const documentFormat = "1"

// etagLocked returns a hash of everything that a document depends on. It is cut to half, because the index of thousands
// of documents consists mostly of ETags. The caller holds mu.
func (s *Source) etagLocked(gv schema.GroupVersion) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s\n", documentFormat, s.builtin.V2().ETag, gv)
	for _, d := range sorted(s.groups[gv]) {
		fmt.Fprintf(h, "%s %x %t\n", d.Name, d.sum, d.NonStructural)
	}
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil)[:sha256.Size/2]))
}

func sorted(ds map[string]*definition) []*definition {
	return slices.SortedFunc(maps.Values(ds), func(a, b *definition) int { return cmp.Compare(a.Name, b.Name) })
}

func pathOf(gv schema.GroupVersion) string { return "apis/" + gv.Group + "/" + gv.Version }

// find returns the definitions of a document and its ETag.
func (s *Source) find(path string) (gv schema.GroupVersion, ds []*definition, etag string, err error) {
	name, below := strings.CutPrefix(path, "apis/")
	group, version, found := strings.Cut(name, "/")
	gv = schema.GroupVersion{Group: group, Version: version}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !below || !found || len(s.groups[gv]) == 0 {
		return gv, nil, "", openapi.ErrGone
	}
	return gv, sorted(s.groups[gv]), s.etagLocked(gv), nil
}

// V3 implements openapi.Source.
func (s *Source) V3(_ context.Context, path string) (text []byte, etag string, err error) {
	gv, ds, etag, err := s.find(path)
	if err != nil {
		return nil, "", err
	}
	resources, err := resourcesOf(gv, ds)
	if err != nil {
		return nil, "", err
	}
	shared, err := s.shared()
	if err != nil {
		return nil, "", err
	}
	text, err = v3Document(resources, shared)
	return text, etag, err
}

// V2 implements openapi.Source.
func (s *Source) V2(_ context.Context, path string) ([]byte, error) {
	gv, ds, _, err := s.find(path)
	if err != nil {
		return nil, err
	}
	resources, err := resourcesOf(gv, ds)
	if err != nil {
		return nil, err
	}
	return v2Document(resources)
}
