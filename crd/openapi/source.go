// Package openapi makes the OpenAPI documents of custom resources, of version 3 for
// each group and version, and what they add to the document of version 2.
//
// A document is put together when somebody asks for it, from the definitions' bytes.
// What is kept of a definition is those bytes, which the caller has anyway, and a
// hash: with thousands of definitions the list of documents is at hand at once, and
// a change costs what changed.
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

	"github.com/keelson-dev/keelson/discovery/openapi"
	"github.com/keelson-dev/keelson/discovery/openapi/archive"
)

// A Definition is a CustomResourceDefinition as it is served.
type Definition struct {
	// Name is that of the definition: "crontabs.stable.example.com".
	Name  string
	Group string
	// Versions are those that are served.
	Versions []string
	// Spec is the specification as JSON.
	Spec string
	// NonStructural says that its schemas are not published (its condition
	// NonStructuralSchema is true).
	NonStructural bool
}

// A Source is an openapi.Source of custom resources.
type Source struct {
	builtin *archive.Archive

	// shared are the built-in definitions that the documents of version 3 contain, read
	// when the first is made.
	shared func() (*sharedDefinitions, error)

	mu        sync.Mutex
	byName    map[string]*definition                         // guarded by mu
	groups    map[schema.GroupVersion]map[string]*definition // guarded by mu; by name of the definition
	changed   map[schema.GroupVersion]bool                   // guarded by mu; what documents does not have yet
	documents []openapi.Document                             // guarded by mu; by path; replaced when it changes
}

// definition is what is kept of one.
type definition struct {
	Definition
	sum [sha256.Size]byte
}

// New returns a Source without definitions. The built-in documents are those that are
// served beside.
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

// Set publishes a definition, in the place of one of the same name.
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

// Remove takes back a definition. It does nothing for one that is not published.
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

// Documents is of openapi.Source.
func (s *Source) Documents() []openapi.Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changed) > 0 {
		s.updateLocked()
	}
	return s.documents
}

// updateLocked brings the list of documents up to date with the changes.
func (s *Source) updateLocked() {
	documents := make([]openapi.Document, 0, max(len(s.groups), len(s.documents)))
	byPath := func(a, b openapi.Document) int { return cmp.Compare(a.Path, b.Path) }
	var new []openapi.Document
	paths := make(map[string]bool, len(s.changed))
	for gv := range s.changed {
		path := pathOf(gv)
		paths[path] = true
		if len(s.groups[gv]) > 0 {
			new = append(new, openapi.Document{Path: path, ETag: s.etagLocked(gv)})
		}
	}
	slices.SortFunc(new, byPath)
	for _, d := range s.documents {
		for len(new) > 0 && new[0].Path < d.Path {
			documents, new = append(documents, new[0]), new[1:]
		}
		if !paths[d.Path] {
			documents = append(documents, d)
		}
	}
	s.documents = append(documents, new...)
	clear(s.changed)
}

// form is part of every ETag: it is another one when documents of the same
// definitions are.
const form = "1"

// etagLocked is a hash of all that a document is made of. Half of it is enough, and
// the index of thousands of documents consists of little else.
func (s *Source) etagLocked(gv schema.GroupVersion) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s\n", form, s.builtin.V2().ETag, gv)
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

// V3 is of openapi.Source.
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

// V2 is of openapi.Source.
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
