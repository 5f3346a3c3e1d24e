package archive

import (
	"bytes"
	"errors"
	"iter"
)

// A Member is one member of a JSON object. The slices are parts of the object's text.
type Member struct {
	Key   []byte // without quotes; escapes are not decoded
	Value []byte
	Raw   []byte // `"key":value`
}

var errNotObject = errors.New("openapi: not a JSON object")

// Members splits the text of a JSON object into its members. It does not check that their
// values are valid JSON.
func Members(object []byte) ([]Member, error) {
	var members []Member
	i := skipSpace(object, 0)
	if i >= len(object) || object[i] != '{' {
		return nil, errNotObject
	}
	i = skipSpace(object, i+1)
	for i < len(object) && object[i] == '"' {
		start := i
		keyEnd := skipValue(object, start)
		i = skipSpace(object, keyEnd)
		if i >= len(object) || object[i] != ':' {
			return nil, errNotObject
		}
		valueStart := skipSpace(object, i+1)
		end := skipValue(object, valueStart)
		members = append(members, Member{
			Key:   object[start+1 : keyEnd-1],
			Value: object[valueStart:end:end],
			Raw:   object[start:end:end],
		})
		i = skipSpace(object, end)
		if i < len(object) && object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	if i >= len(object) || object[i] != '}' {
		return nil, errNotObject
	}
	return members, nil
}

// Find returns the value at a path of keys. The result is a part of the text.
func Find(object []byte, path ...string) (value []byte, found bool, err error) {
	value = object
	for _, key := range path {
		members, err := Members(value)
		if err != nil {
			return nil, false, err
		}
		found = false
		for _, m := range members {
			if string(m.Key) == key {
				value, found = m.Value, true
				break
			}
		}
		if !found {
			return nil, false, nil
		}
	}
	return value, true, nil
}

// The prefixes of references to definitions.
const (
	RefV2 = "#/definitions/"
	RefV3 = "#/components/schemas/"
)

// References iterates over the names of the definitions that a compact JSON text refers to.
func References(text []byte, prefix string) iter.Seq[string] {
	start := []byte(`"$ref":"` + prefix)
	return func(yield func(string) bool) {
		rest := text
		for {
			i := bytes.Index(rest, start)
			if i < 0 {
				return
			}
			rest = rest[i+len(start):]
			end := bytes.IndexByte(rest, '"')
			if end < 0 || !yield(string(rest[:end])) {
				return
			}
		}
	}
}

// memberKey returns the key of the text `"key":value`.
func memberKey(raw []byte) []byte {
	end := skipValue(raw, 0)
	if end < 2 {
		return nil
	}
	return raw[1 : end-1]
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index after the value that starts at i, or len(b).
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if i >= len(b) {
				return len(b)
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of a number or a literal
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(b)
}
