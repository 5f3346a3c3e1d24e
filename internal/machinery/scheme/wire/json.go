package wire

import (
	"bytes"
	"errors"
	"strconv"
)

// ErrMalformedJSON means that a document is not a valid JSON object.
var ErrMalformedJSON = errors.New("malformed JSON object")

// Member returns the value of a member of the JSON object doc, and the positions where it
// begins and ends. The document must be valid JSON. found is false if there is no such member.
func Member(doc []byte, name string) (value []byte, start, end int, found bool, err error) {
	err = eachMember(doc, func(key []byte, s, e int) bool {
		if string(key) == name {
			value, start, end, found = doc[s:e], s, e, true
			return false
		}
		return true
	})
	return value, start, end, found, err
}

// StampJSON returns the JSON object doc with metadata.resourceVersion set to revision. The
// member is placed where the encoder of typed structs places it: after uid, or as early as
// possible if there is no uid.
func StampJSON(doc []byte, revision int64) ([]byte, error) {
	meta, start, _, found, err := Member(doc, "metadata")
	if err != nil {
		return nil, err
	}
	if !found || len(meta) < 2 || meta[0] != '{' {
		return nil, ErrMalformedJSON
	}
	return stampMetadata(doc, start, meta, revision, false)
}

// StampItem is StampJSON for a document that the encoder of typed structs has made from a struct without a
// resourceVersion. Its metadata has the order of the struct, so the members after the resourceVersion are not
// read.
func StampItem(doc []byte, revision int64) ([]byte, error) {
	const open = `{"metadata":`
	if !bytes.HasPrefix(doc, []byte(open+"{")) {
		return StampJSON(doc, revision)
	}
	return stampMetadata(doc, len(open), doc[len(open):], revision, true)
}

// stampMetadata stamps a document. Its metadata begins at the position start, and meta begins with it. inOrder
// means that the metadata begins with those members that the struct has before the resourceVersion.
func stampMetadata(doc []byte, start int, meta []byte, revision int64, inOrder bool) ([]byte, error) {
	// from and to are the positions, relative to meta, of the bytes to replace.
	from, to := 1, 1
	var replaced, before, after bool
	err := eachMember(meta, func(key []byte, s, e int) bool {
		switch string(key) {
		case "resourceVersion":
			from, to, replaced = s, e, true
			return false
		case "name", "generateName", "namespace", "selfLink", "uid":
			from, to, before = e, e, true
		default:
			after = true
			return !inOrder
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(doc)+len(`"resourceVersion":"",`)+20)
	out = append(out, doc[:start+from]...)
	if replaced {
		out = append(out, '"')
		out = strconv.AppendInt(out, revision, 10)
		out = append(out, '"')
		return append(out, doc[start+to:]...), nil
	}
	if before {
		out = append(out, ',')
	}
	out = append(out, `"resourceVersion":"`...)
	out = strconv.AppendInt(out, revision, 10)
	out = append(out, '"')
	if !before && after {
		out = append(out, ',')
	}
	return append(out, doc[start+to:]...), nil
}

// StampTree is StampJSON for the document of a tree, whose members are sorted by name.
func StampTree(doc []byte, revision int64) ([]byte, error) {
	meta, start, _, found, err := Member(doc, "metadata")
	if err != nil {
		return nil, err
	}
	if !found || len(meta) < 2 || meta[0] != '{' {
		return nil, ErrMalformedJSON
	}
	const name = "resourceVersion"
	// The new member replaces the bytes between from and to.
	from, to := 1, 1
	var replaced, before, after bool
	err = eachMember(meta, func(key []byte, s, e int) bool {
		switch c := bytes.Compare(key, []byte(name)); {
		case c < 0:
			from, to, before = e, e, true
		case c == 0:
			from, to, replaced = s, e, true
			return false
		default:
			after = true
			return false
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(doc)+len(name)+len(`"":"",`)+20)
	out = append(out, doc[:start+from]...)
	if !replaced {
		if before {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, name...)
		out = append(out, `":`...)
	}
	out = append(out, '"')
	out = strconv.AppendInt(out, revision, 10)
	out = append(out, '"')
	if !replaced && !before && after {
		out = append(out, ',')
	}
	return append(out, doc[start+to:]...), nil
}

// EachMember calls f with the members of the JSON object doc until it returns false: the name as it is between its quotes, and the
// value. The document must be valid JSON.
func EachMember(doc []byte, f func(name, value []byte) bool) error {
	return eachMember(doc, func(key []byte, start, end int) bool { return f(key, doc[start:end]) })
}

// eachMember calls f with the key of each member of a JSON object and the positions of its
// value, until f returns false.
func eachMember(doc []byte, f func(key []byte, start, end int) bool) error {
	pos := skipSpace(doc, 0)
	if pos >= len(doc) || doc[pos] != '{' {
		return ErrMalformedJSON
	}
	pos = skipSpace(doc, pos+1)
	if pos < len(doc) && doc[pos] == '}' {
		return nil
	}
	for pos < len(doc) {
		keyEnd, err := skipValue(doc, pos)
		if err != nil || doc[pos] != '"' {
			return ErrMalformedJSON
		}
		key := doc[pos+1 : keyEnd-1]
		pos = skipSpace(doc, keyEnd)
		if pos >= len(doc) || doc[pos] != ':' {
			return ErrMalformedJSON
		}
		start := skipSpace(doc, pos+1)
		end, err := skipValue(doc, start)
		if err != nil {
			return err
		}
		if !f(key, start, end) {
			return nil
		}
		pos = skipSpace(doc, end)
		if pos < len(doc) && doc[pos] == ',' {
			pos = skipSpace(doc, pos+1)
			continue
		}
		if pos < len(doc) && doc[pos] == '}' {
			return nil
		}
		return ErrMalformedJSON
	}
	return ErrMalformedJSON
}

func skipSpace(doc []byte, pos int) int {
	for pos < len(doc) {
		switch doc[pos] {
		case ' ', '\t', '\n', '\r':
			pos++
		default:
			return pos
		}
	}
	return pos
}

// skipValue returns the position after the JSON value at pos. The document must be valid.
func skipValue(doc []byte, pos int) (int, error) {
	if pos >= len(doc) {
		return 0, ErrMalformedJSON
	}
	switch doc[pos] {
	case '"':
		return skipString(doc, pos)
	case '{', '[':
		depth := 0
		for pos < len(doc) {
			switch doc[pos] {
			case '"':
				end, err := skipString(doc, pos)
				if err != nil {
					return 0, err
				}
				pos = end
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return pos + 1, nil
				}
			}
			pos++
		}
		return 0, ErrMalformedJSON
	}
	for pos < len(doc) {
		switch doc[pos] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return pos, nil
		}
		pos++
	}
	return pos, nil
}

func skipString(doc []byte, pos int) (int, error) {
	for i := pos + 1; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			return i + 1, nil
		case '\\':
			i++ // the escaped character
		}
	}
	return 0, ErrMalformedJSON
}

// KindOf returns the text of the members apiVersion and kind of a JSON object. A result is nil
// if the member is missing, is not a string or contains escapes. The last duplicate is used.
func KindOf(doc []byte) (apiVersion, kind []byte, err error) {
	err = eachMember(doc, func(key []byte, start, end int) bool {
		switch string(key) {
		case "apiVersion":
			apiVersion = plainText(doc[start:end])
		case "kind":
			kind = plainText(doc[start:end])
		}
		return true
	})
	return apiVersion, kind, err
}

// plainText returns the content of a string without escapes.
func plainText(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return nil
	}
	return value[1 : len(value)-1]
}
