package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

const (
	// maxMember limits the size in bytes of a path or definition of an extension API server, and maxNesting the
	// depth of its values. In real documents, both are ten times smaller.
	maxMember, maxNesting = 1 << 20, 200
	// maxPart is the largest part of the OpenAPI v2 document that one extension API server adds, in bytes.
	maxPart = 16 << 20
)

// CheckV2 returns the part of an extension API server's OpenAPI v2 document that is added to the document of this
// server: the paths for which keep returns true, and the definitions that they refer to. All clients get this part, so
// invalid paths and definitions are dropped, together with the paths and definitions that refer to them. dropped has
// one error for each invalid value.
func CheckV2(text []byte, keep func(path string) bool) (part []byte, dropped []error, err error) {
	var document struct {
		Paths       map[string]json.RawMessage `json:"paths"`
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, nil, err
	}
	for path := range document.Paths {
		if !keep(path) {
			delete(document.Paths, path)
		}
	}
	c := &checker{}
	definitions := c.check(document.Definitions, &spec.Schema{}, encodeV2Definitions)
	paths := c.check(document.Paths, &spec.PathItem{}, encodeV2Paths)
	definitions = withoutDangling(definitions, definitions)
	paths = withoutDangling(paths, definitions)
	definitions = referenced(definitions, paths, archive.RefV2)
	w := &objectWriter{}
	w.object("paths", paths)
	w.object("definitions", definitions)
	part = w.end()
	if len(part) > maxPart {
		return nil, c.dropped, fmt.Errorf("the paths and definitions have more than %d bytes", maxPart)
	}
	return part, c.dropped, nil
}

// checker checks the members of a document.
type checker struct{ dropped []error }

// check returns the members that have a type and can be encoded as protobuf, sorted by name.
func (c *checker) check(values map[string]json.RawMessage, like any, encode encoder) []archive.Member {
	var all []archive.Member
	for name, value := range values {
		m, err := normalize(name, value)
		if err == nil {
			err = json.Unmarshal(m.Value, reflect.New(reflect.TypeOf(like).Elem()).Interface())
		}
		if err != nil {
			c.dropped = append(c.dropped, fmt.Errorf("%.100q: %w", name, err))
			continue
		}
		all = append(all, m)
	}
	sortMembers(all)
	var good []archive.Member
	for batch := range batches(all) {
		if _, err := encode(objectOf(batch)); err == nil {
			good = append(good, batch...)
			continue
		}
		for _, m := range batch { // find out which one it is
			if _, err := encode(objectOf([]archive.Member{m})); err != nil {
				c.dropped = append(c.dropped, fmt.Errorf("%.100q: %.200w", m.Key, err))
				continue
			}
			good = append(good, m)
		}
	}
	return good
}

// errNested is the error of a value whose depth is over maxNesting.
var errNested = errors.New("it is nested too deeply")

// normalize returns a member whose text has no spaces, no duplicate members and no needless escapes. References
// finds all references only in such a text.
func normalize(name string, value []byte) (archive.Member, error) {
	switch {
	case len(name)+len(value) > maxMember:
		return archive.Member{}, fmt.Errorf("it has more than %d bytes", maxMember)
	case scheme.Depth(value) > maxNesting:
		return archive.Member{}, errNested
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return archive.Member{}, err
	}
	if _, ok := tree.(map[string]any); !ok {
		return archive.Member{}, errors.New("it is not an object")
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]any{name: tree}); err != nil {
		return archive.Member{}, err
	}
	members, err := archive.Members(b.Bytes())
	if err != nil || len(members) != 1 {
		return archive.Member{}, errors.Join(err, errors.New("it cannot be written"))
	}
	return members[0], nil
}

// withoutDangling returns the members without references to missing definitions, direct or through other definitions.
// If members are the definitions themselves, definitions with references to dropped ones are dropped too.
func withoutDangling(members, definitions []archive.Member) []archive.Member {
	exists := make(map[string]bool, len(definitions))
	for _, m := range definitions {
		exists[string(m.Key)] = true
	}
	same := len(members) > 0 && len(definitions) > 0 && &members[0] == &definitions[0]
	for {
		var kept []archive.Member
		for _, m := range members {
			if refersOnly(m, exists) {
				kept = append(kept, m)
			} else if same {
				delete(exists, string(m.Key))
			}
		}
		if len(kept) == len(members) || !same {
			return kept
		}
		members = kept
	}
}

func refersOnly(m archive.Member, exists map[string]bool) bool {
	for name := range archive.References(m.Value, archive.RefV2) {
		if !exists[name] {
			return false
		}
	}
	return true
}
