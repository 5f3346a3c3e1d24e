package openapi

import (
	"bytes"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// v2Parts is the OpenAPI v2 document, split at the members to which groups add.
type v2Parts struct {
	members            []archive.Member // of the document, in order
	paths, definitions []archive.Member
}

// etagV2 returns the ETag of the document. builtIn is true if no source adds to the built-in document.
func (h *Handler) etagV2() (etag string, builtIn bool) {
	for _, s := range h.documents {
		if s != nil {
			return h.etag("v2"), false
		}
	}
	if h.all {
		return h.archive.V2().ETag, true
	}
	etag, err := h.reducedETag()
	if err != nil {
		return h.etag("v2"), false
	}
	return etag, true
}

// hashReduced makes the built-in document without unserved resources, and returns its ETag.
func (h *Handler) hashReduced() (string, error) {
	parts, err := h.readBuiltInV2()
	if err != nil {
		return "", err
	}
	hash := sha512.New()
	if err := parts.writeJSON(hash); err != nil {
		return "", err
	}
	return fmt.Sprintf("%X", hash.Sum(nil)), nil
}

// readV2 returns the parts. With errDoNotCache it returns the parts that could be read.
func (h *Handler) readV2(ctx context.Context) (*v2Parts, error) {
	p, err := h.readBuiltInV2()
	if err != nil {
		return nil, err
	}
	return p, h.addSources(ctx, p)
}

// readBuiltInV2 returns the parts of the built-in document, without sources.
func (h *Handler) readBuiltInV2() (*v2Parts, error) {
	text, err := h.archive.ReadV2()
	if err != nil {
		return nil, err
	}
	p := &v2Parts{}
	if p.members, err = archive.Members(text); err != nil {
		return nil, err
	}
	if p.paths, err = membersOf(p.members, "paths"); err != nil {
		return nil, err
	}
	if p.definitions, err = membersOf(p.members, "definitions"); err != nil {
		return nil, err
	}
	for i, m := range p.members {
		if string(m.Key) == "info" {
			p.members[i].Raw = h.withVersion(m.Raw)
		}
	}
	if !h.all {
		h.dropDisabled(p)
	}
	return p, nil
}

// dropDisabled removes the paths of disabled documents and of hidden resources, and the definitions that no path
// refers to any more.
func (h *Handler) dropDisabled(p *v2Parts) {
	documents := h.archive.V3()
	p.paths = slices.DeleteFunc(p.paths, func(m archive.Member) bool {
		owner := ""
		for _, d := range documents {
			if len(d.Path) > len(owner) && strings.HasPrefix(string(m.Key), "/"+d.Path+"/") {
				owner = d.Path
			}
		}
		return owner != "" &&
			(!h.enabled(owner) || slices.Contains(h.hidden[owner], resourceOf(owner, string(m.Key))))
	})
	users := slices.Clone(p.paths)
	for _, m := range p.members {
		if key := string(m.Key); key != "paths" && key != "definitions" {
			users = append(users, m) // shared parameters
		}
	}
	p.definitions = referenced(p.definitions, users, archive.RefV2)
}

// addSources adds the parts of the sources. If a source fails, its part is left out and
// errDoNotCache is returned.
func (h *Handler) addSources(ctx context.Context, p *v2Parts) error {
	var failed error
	taken := map[string]bool{}
	var m merger
	for d, s := range h.documents {
		if taken[d.Path] {
			continue
		}
		taken[d.Path] = true
		if s == nil {
			continue
		}
		text, err := s.V2(ctx, d.Path)
		if err == nil && len(text) > 0 {
			if m.parts == nil {
				m.start(p)
			}
			err = m.add(text)
		}
		if err != nil && !errors.Is(err, ErrGone) {
			h.log.Error("the OpenAPI v2 document is served without a part", "document", d.Path, "err", err)
			failed = errDoNotCache
		}
	}
	if m.parts != nil {
		m.sort()
	}
	return failed
}

// A merger adds members whose names do not exist yet.
type merger struct {
	parts *v2Parts
	names map[string]bool // the names of paths, which begin with a slash, and of definitions
}

func (m *merger) start(p *v2Parts) {
	m.parts, m.names = p, make(map[string]bool, len(p.paths)+len(p.definitions))
	for _, members := range [][]archive.Member{p.paths, p.definitions} {
		for _, member := range members {
			m.names[string(member.Key)] = true
		}
	}
}

func (m *merger) add(text []byte) error {
	members, err := archive.Members(text)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		to   *[]archive.Member
	}{{"paths", &m.parts.paths}, {"definitions", &m.parts.definitions}} {
		added, err := membersOf(members, part.name)
		if err != nil {
			return err
		}
		for _, member := range added {
			if !m.names[string(member.Key)] {
				m.names[string(member.Key)] = true
				*part.to = append(*part.to, member)
			}
		}
	}
	return nil
}

func (m *merger) sort() {
	sortMembers(m.parts.paths)
	sortMembers(m.parts.definitions)
}

func sortMembers(members []archive.Member) {
	slices.SortFunc(members, func(a, b archive.Member) int { return bytes.Compare(a.Key, b.Key) })
}

func (p *v2Parts) writeJSON(out io.Writer) error {
	w := &stickyWriter{out: out}
	w.write('{')
	for i, m := range p.members {
		if i > 0 {
			w.write(',')
		}
		switch string(m.Key) {
		case "paths":
			w.object("paths", p.paths)
		case "definitions":
			w.object("definitions", p.definitions)
		default:
			w.write(m.Raw...)
		}
	}
	w.write('}')
	return w.err
}

// stickyWriter keeps the first error.
type stickyWriter struct {
	out io.Writer
	err error
}

func (w *stickyWriter) write(b ...byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

func (w *stickyWriter) object(name string, members []archive.Member) {
	w.write([]byte(`"` + name + `":{`)...)
	for i, m := range members {
		if i > 0 {
			w.write(',')
		}
		w.write(m.Raw...)
	}
	w.write('}')
}
