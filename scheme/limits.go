package scheme

import (
	"bytes"
	"errors"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

const (
	// MaxDepth is how deep the values of a document, and the messages of a protobuf object, may be
	// nested. Objects that are meant have a tenth of it at most; the work for some
	// documents grows with the square of their depth.
	MaxDepth = 1000
	// MaxBytes is how large a document may be, in the encoding that it was sent in and in JSON.
	MaxBytes = 3 << 20
)

// errDepth has the words of the JSON decoder, whose own limit is ten times as high.
var errDepth = errors.New("exceeded max depth")

// errExpanded says that a YAML document is short only because it repeats itself by aliases.
var errExpanded = errors.New("yaml: document contains excessive aliasing")

// checkDepth refuses a JSON document that is nested too deeply.
func checkDepth(doc []byte) error {
	if bytes.Count(doc, []byte("{"))+bytes.Count(doc, []byte("[")) <= MaxDepth {
		return nil // the common case, which takes no look at each character
	}
	if Depth(doc) > MaxDepth {
		return errDepth
	}
	return nil
}

// Depth returns how deep a JSON document is nested; that of a number or string is 0.
func Depth(doc []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// Indentation returns how many bytes of spaces a JSON document would get in YAML, or if it was
// indented.
func Indentation(doc []byte) (spaces int) {
	const step = 2
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			spaces += step * depth
		case c == ',':
			spaces += step * depth
		case c == '}' || c == ']':
			depth--
		}
	}
	return spaces
}

// CheckDepth refuses a JSON document that is nested too deeply.
func CheckDepth(doc []byte) error { return checkDepth(doc) }

// CheckTreeDepth refuses a value of a tree that is nested too deeply.
func CheckTreeDepth(value any) error { return checkTreeDepth(value, 0) }

func checkTreeDepth(value any, depth int) error {
	if depth > MaxDepth {
		return errDepth
	}
	switch value := value.(type) {
	case map[string]any:
		for _, below := range value {
			if err := checkTreeDepth(below, depth+1); err != nil {
				return err
			}
		}
	case []any:
		for _, below := range value {
			if err := checkTreeDepth(below, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// YAMLToJSON converts a YAML document that a client sent. One that its aliases make larger than
// MaxBytes, or that is nested too deeply, is an error.
func YAMLToJSON(body []byte) ([]byte, error) {
	if err := CheckYAML(body); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(body)
}

// CheckYAML refuses a YAML document that would become too large, or is nested too deeply, when it is
// decoded. Only one with an anchor and an alias can become larger than it is.
func CheckYAML(body []byte) error {
	if !bytes.Contains(body, []byte("&")) || !bytes.Contains(body, []byte("*")) {
		return nil
	}
	var root goyaml.Node
	if err := goyaml.Unmarshal(body, &root); err != nil {
		return err
	}
	// What needs no aliases becomes longer in JSON too, by quotes.
	e := expansion{most: MaxBytes + len(body), aliases: map[*goyaml.Node]int{}}
	if e.size(&root, 0) > e.most && len(e.aliases) > 0 {
		return errExpanded
	}
	return nil
}

// An expansion computes how large YAML becomes.
type expansion struct {
	most int
	// aliases are the sizes of what aliases stand for, so that the time does not grow with what they
	// expand to.
	aliases map[*goyaml.Node]int
}

// size is about how many bytes of JSON a node becomes, at most one more than e.most.
func (e expansion) size(n *goyaml.Node, depth int) int {
	if depth > MaxDepth {
		return e.most + 1
	}
	if n.Kind == goyaml.AliasNode {
		if size, ok := e.aliases[n.Alias]; ok {
			return size
		}
		e.aliases[n.Alias] = 0 // while it is computed: the decoder refuses an anchor that contains itself
		e.aliases[n.Alias] = e.size(n.Alias, depth+1)
		return e.aliases[n.Alias]
	}
	size := len(n.Value) + 1
	for _, child := range n.Content {
		size = min(size+e.size(child, depth+1), e.most+1)
	}
	return size
}
