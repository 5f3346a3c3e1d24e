package celrules

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

var errNoField = errors.New("does not refer to a valid field")

// FieldPath parses a path of fields below a schema, as it is written in the fieldPath of a rule and in the jsonPath
// of a selectable field: ".a.b", or ".a['b']" if brackets is true. It returns the path as errors write it and the
// schema of the field, which is nil for a value of a map without a schema. For an empty path it returns nil and s.
// It fails if the path is malformed or the schema has no such field.
func FieldPath(s *structuralschema.Schema, path string, brackets bool) (*field.Path, *structuralschema.Schema, error) {
	var out *field.Path
	tokens := pathTokens(path)
	next := func() (string, error) {
		if len(tokens) == 0 {
			return "", errors.New("unexpected end of JSON path")
		}
		t := tokens[0]
		tokens = tokens[1:]
		return t, nil
	}
	for len(tokens) > 0 {
		start, _ := next()
		if start != "." && start != "[" {
			return nil, nil, fmt.Errorf("expected [ or . but got: %s", start)
		}
		if start == "[" && !brackets {
			return nil, nil, errors.New("array notation is not allowed")
		}
		name, err := next()
		if err != nil {
			return nil, nil, err
		}
		if start == "[" {
			if name, err = unquote(name); err != nil {
				return nil, nil, err
			}
		}
		switch {
		case s == nil:
			return nil, nil, errNoField
		case s.Properties != nil:
			out, s = out.Child(name), s.Properties[name]
			if s == nil {
				return nil, nil, errNoField
			}
		case s.AdditionalProperties != nil || s.AnyProperties:
			out, s = out.Key(name), s.AdditionalProperties
		default:
			return nil, nil, errNoField
		}
		if start == "[" {
			end, err := next()
			if err != nil {
				return nil, nil, err
			}
			if end != "]" {
				return nil, nil, fmt.Errorf("expected ] but got %s", end)
			}
		}
	}
	return out, s, nil
}

// pathTokens splits a path into ".", "[", "]", quoted strings including their quotes, and the text between these.
func pathTokens(path string) []string {
	var tokens []string
	for path != "" {
		n := tokenLength(path)
		tokens = append(tokens, path[:n])
		path = path[n:]
	}
	return tokens
}

func tokenLength(s string) int {
	if s[0] == '\'' {
		for i := 1; i < len(s); i++ {
			if s[i] == '\'' && s[i-1] != '\\' {
				return i + 1
			}
		}
		return len(s)
	}
	if strings.IndexByte(".[]", s[0]) >= 0 {
		return 1
	}
	if i := strings.IndexAny(s, ".[]"); i > 0 {
		return i
	}
	return len(s)
}

// unquote returns the content of a string in single quotes.
func unquote(s string) (string, error) {
	if len(s) < 2 || s[0] != '\'' || s[len(s)-1] != '\'' {
		return "", fmt.Errorf("expected single quoted string but got %s", s)
	}
	rest := s[1 : len(s)-1]
	var out strings.Builder
	for {
		i := strings.IndexByte(rest, '\\')
		if i < 0 || i+1 == len(rest) {
			return out.String() + rest, nil
		}
		at := strings.IndexByte(`abfnrtv'\`, rest[i+1])
		if at < 0 {
			_, n := utf8.DecodeRuneInString(rest[i+1:])
			return "", fmt.Errorf("invalid string literal: invalid escape char %s", rest[i:i+1+n])
		}
		out.WriteString(rest[:i])
		out.WriteByte("\a\b\f\n\r\t\v'\\"[at])
		rest = rest[i+2:]
	}
}
