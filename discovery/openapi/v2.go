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

	"github.com/keelson-dev/keelson/discovery/openapi/archive"
)

// v2Parts is the document of OpenAPI v2 split at the members that groups add to.
type v2Parts struct {
	members            []archive.Member // of the document, in order
	paths, definitions []archive.Member
}

// etagV2 is made of the ETags of the parts, so that it is known without them.
func (h *Handler) etagV2() string {
	hash := sha512.New()
	builtin := h.archive.V2().ETag
	io.WriteString(hash, builtin)
	plain := h.all
	for d, s := range h.documents {
		if s != nil || !h.all {
			fmt.Fprintf(hash, "\n%s %s", d.Path, d.ETag)
			plain = plain && s == nil
		}
	}
	if plain {
		return builtin
	}
	return fmt.Sprintf("%X", hash.Sum(nil))
}

func (h *Handler) readV2(ctx context.Context) (*v2Parts, error) {
	text, err := h.archive.ReadV2()
	if err != nil {
		return nil, err
	}
	p := &v2Parts{}
	if p.members, err = archive.Members(text); err != nil {
		return nil, err
	}
	for _, m := range p.members {
		switch string(m.Key) {
		case "paths":
			p.paths, err = archive.Members(m.Value)
		case "definitions":
			p.definitions, err = archive.Members(m.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	if !h.all {
		h.dropDisabled(p)
	}
	return p, h.addSources(ctx, p)
}

// dropDisabled leaves out the paths of disabled documents and the definitions that
// no path refers to any more.
func (h *Handler) dropDisabled(p *v2Parts) {
	documents := h.archive.V3()
	p.paths = slices.DeleteFunc(p.paths, func(m archive.Member) bool {
		owner := ""
		for _, d := range documents {
			if len(d.Path) > len(owner) && strings.HasPrefix(string(m.Key), "/"+d.Path+"/") {
				owner = d.Path
			}
		}
		return owner != "" && !h.enabled(owner)
	})
	byName := make(map[string][]byte, len(p.definitions))
	for _, m := range p.definitions {
		byName[string(m.Key)] = m.Value
	}
	used := map[string]bool{}
	var visit func(text []byte)
	visit = func(text []byte) {
		for name := range archive.References(text, archive.RefV2) {
			if !used[name] {
				used[name] = true
				visit(byName[name])
			}
		}
	}
	for _, m := range p.paths {
		visit(m.Value)
	}
	for _, m := range p.members {
		if key := string(m.Key); key != "paths" && key != "definitions" {
			visit(m.Value) // parameters that operations share
		}
	}
	p.definitions = slices.DeleteFunc(p.definitions, func(m archive.Member) bool { return !used[string(m.Key)] })
}

func (h *Handler) addSources(ctx context.Context, p *v2Parts) error {
	taken := map[string]bool{}
	added := false
	names := map[string]bool{}
	for d, s := range h.documents {
		if taken[d.Path] {
			continue
		}
		taken[d.Path] = true
		if s == nil {
			continue
		}
		if !added {
			added = true
			for _, m := range p.paths {
				names[string(m.Key)] = true
			}
			for _, m := range p.definitions {
				names[string(m.Key)] = true
			}
		}
		text, err := s.V2(ctx, d.Path)
		if errors.Is(err, ErrGone) || err == nil && len(text) == 0 {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.Path, err)
		}
		for list, name := range map[*[]archive.Member]string{&p.paths: "paths", &p.definitions: "definitions"} {
			object, found, err := archive.Find(text, name)
			if err != nil {
				return fmt.Errorf("%s: %w", d.Path, err)
			}
			if !found {
				continue
			}
			members, err := archive.Members(object)
			if err != nil {
				return fmt.Errorf("%s: %w", d.Path, err)
			}
			for _, m := range members {
				// Names of paths begin with a slash, those of definitions do not.
				if !names[string(m.Key)] {
					names[string(m.Key)] = true
					*list = append(*list, m)
				}
			}
		}
	}
	if added {
		byKey := func(a, b archive.Member) int { return bytes.Compare(a.Key, b.Key) }
		slices.SortFunc(p.paths, byKey)
		slices.SortFunc(p.definitions, byKey)
	}
	return nil
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

// stickyWriter remembers the first error.
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
