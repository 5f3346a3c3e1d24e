package scheme

import (
	"fmt"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// JSONToYAML converts a JSON document from an encoder to YAML with the same values.
func JSONToYAML(doc []byte) ([]byte, error) { return yaml.JSONToYAML(escapeForYAML(doc)) }

// escapeForYAML escapes the characters in a JSON document that have another meaning in YAML:
// control characters, which YAML does not allow, and characters that YAML treats as line
// breaks or as a byte order mark. In JSON they only occur in strings. It returns doc itself if
// there are none.
func escapeForYAML(doc []byte) []byte {
	var out []byte
	done := 0 // the bytes before done are in out
	for i := 0; i < len(doc); {
		c, size := rune(doc[i]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRune(doc[i:])
		}
		switch {
		case c >= 0x7f && c <= 0x9f, c == 0x2028, c == 0x2029, c == 0xfeff, c == 0xfffe, c == 0xffff:
			out = append(out, doc[done:i]...)
			out = fmt.Appendf(out, `\u%04x`, c)
			done = i + size
		}
		i += size
	}
	if out == nil {
		return doc
	}
	return append(out, doc[done:]...)
}
