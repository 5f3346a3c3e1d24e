package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// A JSON value is nil, bool, string, json.Number, []any or map[string]any.

// decodeJSON reads one JSON value and returns an error if something follows it.
func decodeJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func isInteger(n json.Number) bool { return !strings.ContainsAny(n.String(), ".eE") }

// lookup returns the value at a dotted path; elements of a list are addressed by their index.
func lookup(v any, path string) any {
	for _, p := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i < 0 || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// appendJSON writes a value in the format of the recorded requests: members sorted by name, a space after commas and
// colons, ASCII only. The format matters because some responses quote the request's body.
func appendJSON(b []byte, v any) []byte {
	switch x := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, x)
	case json.Number:
		return append(b, x...)
	case string:
		return appendString(b, x)
	case []any:
		b = append(b, '[')
		for i, e := range x {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendJSON(b, e)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(x)) {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendString(b, k)
			b = append(b, ": "...)
			b = appendJSON(b, x[k])
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("not a JSON value: %T", v))
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r < ' ' || r > '~' && r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = append(b, byte(r))
		}
	}
	return append(b, '"')
}

// text returns a value for the output of a difference.
func text(v any) string {
	if v == absent {
		return "<absent>"
	}
	return string(appendJSON(nil, v))
}
