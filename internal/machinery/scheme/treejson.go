package scheme

import (
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"
)

// appendTree appends the JSON of a decoded value. The result equals that of json.Marshal, but
// is made without reflection. Values of other types are encoded by json.Marshal.
func appendTree(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		return appendText(b, v)
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case map[string]any:
		if v == nil {
			return append(b, "null"...), nil
		}
		return appendMembers(b, v)
	case []any:
		if v == nil {
			return append(b, "null"...), nil
		}
		return appendElements(b, v)
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

func appendMembers(b []byte, members map[string]any) ([]byte, error) {
	var few [16]string // most objects have no more members, so no slice is allocated
	names := few[:0]
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, '{')
	var err error
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendText(b, name); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendTree(b, members[name]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendElements(b []byte, elements []any) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i, v := range elements {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendTree(b, v); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendText appends a string. json.Marshal escapes strings that contain special characters.
func appendText(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' ||
			c == 0x7f {
			text, err := json.Marshal(s)
			return append(b, text...), err
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}
