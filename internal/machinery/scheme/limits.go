package scheme

import (
	"bytes"
	"errors"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

const (
	// MaxDepth is the deepest nesting of the values in a document, or of the messages in a
	// protobuf object. Real objects have at most a tenth of it. There has to be a limit because the
	// time for some documents grows with the square of their depth.
	MaxDepth = 1000
	// MaxBytes is the largest size of a document in bytes, as it was sent and as JSON.
	MaxBytes = 3 << 20
)

// errDepth has the text of the error of the JSON decoder. The limit of that decoder is ten times as high.
var errDepth = errors.New("exceeded max depth")

// errExpanded is returned for a YAML document that is small only because it uses aliases many
// times.
var errExpanded = errors.New("yaml: document contains excessive aliasing")

// checkDepth returns an error for a JSON document that is nested too deeply.
func checkDepth(doc []byte) error {
	if bytes.Count(doc, []byte("{"))+bytes.Count(doc, []byte("[")) <= MaxDepth {
		return nil // the common case: not every character is examined
	}
	if Depth(doc) > MaxDepth {
		return errDepth
	}
	return nil
}

// Depth returns the nesting depth of a JSON document; a number or a string has depth 0.
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

// Indentation returns how many bytes of spaces indentation adds to a JSON document, in YAML or
// indented JSON.
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

// CheckDepth returns an error for a JSON document that is nested too deeply.
func CheckDepth(doc []byte) error { return checkDepth(doc) }

// CheckTreeDepth returns an error for a decoded value that is nested too deeply.
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

// YAMLToJSON converts a YAML document from a client. It returns an error for a document that
// is nested too deeply, or that becomes larger than MaxBytes by its aliases.
func YAMLToJSON(body []byte) ([]byte, error) {
	if err := CheckYAML(body); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(body)
}

// CheckYAML returns an error for a YAML document that would become too large, or is nested too
// deeply, when it is decoded. Only a document with an anchor and an alias can become larger by
// decoding.
func CheckYAML(body []byte) error {
	if !bytes.Contains(body, []byte("&")) || !bytes.Contains(body, []byte("*")) {
		return nil
	}
	var root goyaml.Node
	if err := goyaml.Unmarshal(body, &root); err != nil {
		return err
	}
	// Quotes make the JSON of a document longer even without aliases.
	e := expansion{most: MaxBytes + len(body), aliases: map[*goyaml.Node]int{}}
	if e.size(&root, 0) > e.most && len(e.aliases) > 0 {
		return errExpanded
	}
	return nil
}

// An expansion computes the size of YAML with its aliases expanded.
type expansion struct {
	most int
	// aliases has the sizes of the nodes that aliases refer to, so that each is computed once.
	aliases map[*goyaml.Node]int
}

// size returns about how many bytes of JSON a node becomes, at most e.most+1.
func (e expansion) size(n *goyaml.Node, depth int) int {
	if depth > MaxDepth {
		return e.most + 1
	}
	if n.Kind == goyaml.AliasNode {
		if size, ok := e.aliases[n.Alias]; ok {
			return size
		}
		e.aliases[n.Alias] = 0 // ends the recursion for an anchor that contains itself, which the decoder refuses
		e.aliases[n.Alias] = e.size(n.Alias, depth+1)
		return e.aliases[n.Alias]
	}
	size := len(n.Value) + 1
	for _, child := range n.Content {
		size = min(size+e.size(child, depth+1), e.most+1)
	}
	return size
}
