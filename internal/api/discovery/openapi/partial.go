package openapi

import (
	"crypto/sha512"
	"fmt"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// resourceOf returns the resource that a path is about: "jobs" for "/apis/batch/v1/namespaces/{namespace}/jobs" in the
// document "apis/batch/v1". It returns "" for the path of the document itself.
func resourceOf(document, path string) string {
	words := strings.Split(strings.TrimPrefix(path, "/"+document+"/"), "/")
	if words[0] == "watch" {
		words = words[1:]
	}
	const aboveName = 2 // namespaces/{namespace}
	if len(words) > aboveName && words[0] == "namespaces" && words[1] == "{namespace}" {
		words = words[aboveName:]
	}
	return words[0]
}

// partial returns an OpenAPI v3 document without the paths of some resources and without the definitions that no
// other path refers to.
func partial(document string, text []byte, hidden []string) ([]byte, error) {
	members, err := archive.Members(text)
	if err != nil {
		return nil, err
	}
	paths, err := membersOf(members, "paths")
	if err != nil {
		return nil, err
	}
	components, err := membersOf(members, "components")
	if err != nil {
		return nil, err
	}
	schemas, err := membersOf(components, "schemas")
	if err != nil {
		return nil, err
	}
	paths = slices.DeleteFunc(paths, func(m archive.Member) bool {
		return slices.Contains(hidden, resourceOf(document, string(m.Key)))
	})
	schemas = referenced(schemas, paths, archive.RefV3)
	out := &objectWriter{}
	for _, m := range members {
		switch string(m.Key) {
		case "paths":
			out.object("paths", paths)
		case "components":
			inner := &objectWriter{}
			for _, c := range components {
				if string(c.Key) == "schemas" {
					inner.object("schemas", schemas)
				} else {
					inner.member(c.Raw)
				}
			}
			out.member([]byte(`"components":` + string(inner.end())))
		default:
			out.member(m.Raw)
		}
	}
	return out.end(), nil
}

// membersOf returns the members of the object in the member with this name. It returns none if there is no such
// member.
func membersOf(members []archive.Member, name string) ([]archive.Member, error) {
	i := slices.IndexFunc(members, func(m archive.Member) bool { return string(m.Key) == name })
	if i < 0 {
		return nil, nil
	}
	return archive.Members(members[i].Value)
}

// referenced returns the definitions that the values refer to, directly or indirectly.
func referenced(definitions, values []archive.Member, prefix string) []archive.Member {
	byName := make(map[string][]byte, len(definitions))
	for _, m := range definitions {
		byName[string(m.Key)] = m.Value
	}
	used := map[string]bool{}
	var visit func(text []byte)
	visit = func(text []byte) {
		for name := range archive.References(text, prefix) {
			if !used[name] {
				used[name] = true
				visit(byName[name])
			}
		}
	}
	for _, m := range values {
		visit(m.Value)
	}
	return slices.DeleteFunc(definitions, func(m archive.Member) bool { return !used[string(m.Key)] })
}

// etagOf returns the ETag of a document, in the format of archive.Info.
func etagOf(text []byte) string {
	return fmt.Sprintf("%X", sha512.Sum512(text))
}

// objectWriter writes a JSON object member by member.
type objectWriter struct{ text []byte }

func (w *objectWriter) member(raw []byte) {
	if len(w.text) == 0 {
		w.text = append(w.text, '{')
	} else {
		w.text = append(w.text, ',')
	}
	w.text = append(w.text, raw...)
}

func (w *objectWriter) object(name string, members []archive.Member) {
	w.member([]byte(`"` + name + `":` + string(objectOf(members))))
}

func (w *objectWriter) end() []byte {
	if len(w.text) == 0 {
		return []byte("{}")
	}
	return append(w.text, '}')
}
