package managedfields

import (
	"encoding/json"
	"strconv"
	"strings"
)

// fields appends the set as fieldsV1 to a buffer. It returns false for texts that only the general algorithm escapes.
func (s *set) fields(buffer []byte) ([]byte, bool) {
	buffer = append(buffer, '{')
	buffer, ok := s.appendTo(buffer, false)
	return append(buffer, '}'), ok
}

func (s *set) appendTo(b []byte, self bool) ([]byte, bool) {
	ok := true
	if s.empty() {
		return b, true
	}
	if self {
		b = append(b, `".":{},`...)
	}
	for i := range s.items {
		it := &s.items[i]
		b = append(b, '"')
		var fine bool
		b, fine = it.step.appendTo(b)
		ok = ok && fine
		b = append(b, `":{`...)
		b, fine = it.sub.appendTo(b, it.member)
		ok = ok && fine
		b = append(b, `},`...)
	}
	return b[:len(b)-1], ok
}

// appendTo appends the step as it stands inside the quotes of a member name.
func (s *step) appendTo(b []byte) ([]byte, bool) {
	switch s.kind {
	case fieldStep:
		b = append(b, "f:"...)
		return appendEscaped(b, s.name)
	case valueStep:
		b = append(b, "v:"...)
		return s.parts[0].appendTo(b)
	}
	b = append(b, "k:{"...)
	ok := true
	for i := range s.parts {
		if i > 0 {
			b = append(b, ',')
		}
		var fine bool
		b = append(b, `\"`...)
		b, fine = appendTwiceEscaped(b, s.parts[i].name)
		ok = ok && fine
		b = append(b, `\":`...)
		b, fine = s.parts[i].appendTo(b)
		ok = ok && fine
	}
	return append(b, '}'), ok
}

func (p *part) appendTo(b []byte) ([]byte, bool) {
	switch p.kind {
	case numPart:
		return strconv.AppendInt(b, p.num, 10), true
	case boolPart:
		return strconv.AppendBool(b, p.num != 0), true
	}
	b = append(b, `\"`...)
	b, ok := appendTwiceEscaped(b, p.text)
	return append(b, `\"`...), ok
}

// appendEscaped appends text as it stands in a JSON string.
func appendEscaped(b []byte, text string) ([]byte, bool) {
	plain := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(append(b, text[plain:i]...), '\\', c)
			plain = i + 1
		case c < ' ' || c >= 0x7f:
			return b, false
		}
	}
	return append(b, text[plain:]...), true
}

// appendTwiceEscaped appends text as it stands in a JSON string that is itself inside of a JSON string. The inner
// string also escapes <, > and &, as encoding/json does.
func appendTwiceEscaped(b []byte, text string) ([]byte, bool) {
	plain := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		var written string
		switch {
		case c == '"':
			written = `\\\"`
		case c == '\\':
			written = `\\\\`
		case c == '<':
			written = `\\u003c`
		case c == '>':
			written = `\\u003e`
		case c == '&':
			written = `\\u0026`
		case c < ' ' || c >= 0x7f:
			return b, false
		default:
			continue
		}
		b = append(append(b, text[plain:i]...), written...)
		plain = i + 1
	}
	return append(b, text[plain:]...), true
}

// parseSet reads fieldsV1. It returns false unless (*set).fields would write exactly the same text.
func parseSet(raw string) (*set, bool) {
	p := parser{text: raw}
	s, _, ok := p.object(0)
	if !ok || p.at != len(raw) {
		return nil, false
	}
	if s == nil {
		s = &set{}
	}
	again, ok := s.fields(make([]byte, 0, len(raw)+1))
	return s, ok && string(again) == raw
}

// maxSetDepth bounds the nesting of fieldsV1 that parseSet reads.
const maxSetDepth = 100

type parser struct {
	text string
	at   int
}

func (p *parser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// object reads the paths below a step. member reports whether the path of the step itself is in the set.
func (p *parser) object(depth int) (s *set, member, ok bool) {
	if depth > maxSetDepth || !p.take('{') {
		return nil, false, false
	}
	if p.take('}') {
		return nil, true, true
	}
	s = &set{}
	for {
		name, ok := p.name()
		if !ok || !p.take(':') {
			return nil, false, false
		}
		sub, subMember, ok := p.object(depth + 1)
		if !ok {
			return nil, false, false
		}
		if name == "." {
			if sub != nil || member {
				return nil, false, false
			}
			member = true
		} else {
			it := item{member: subMember, sub: sub}
			if it.step, ok = parseStep(name); !ok {
				return nil, false, false
			}
			if n := len(s.items); n > 0 && s.items[n-1].step.compare(&it.step) >= 0 {
				return nil, false, false
			}
			s.items = append(s.items, it)
		}
		if p.take('}') {
			return s, member, len(s.items) > 0
		}
		if !p.take(',') {
			return nil, false, false
		}
	}
}

func (p *parser) name() (string, bool) {
	if !p.take('"') {
		return "", false
	}
	start, escaped := p.at, false
	for ; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\\':
			escaped = true
			p.at++
		case '"':
			text := p.text[start:p.at]
			p.at++
			if !escaped {
				return text, true
			}
			return unescape(text)
		}
	}
	return "", false
}

// unescape reverses appendEscaped.
func unescape(text string) (string, bool) {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			if i++; i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", false
			}
		}
		out = append(out, text[i])
	}
	return string(out), true
}

func parseStep(text string) (step, bool) {
	if len(text) < 2 || text[1] != ':' {
		return step{}, false
	}
	rest := text[2:]
	switch text[0] {
	case 'f':
		return step{kind: fieldStep, name: rest}, true
	case 'v':
		v, rest, ok := parsePart(rest)
		return step{kind: valueStep, parts: []part{v}}, ok && rest == ""
	case 'k':
		parts, ok := parseParts(rest)
		return step{kind: keyStep, parts: parts}, ok
	}
	return step{}, false
}

// parseParts reads a JSON object of scalars.
func parseParts(text string) ([]part, bool) {
	text, ok := strings.CutPrefix(text, "{")
	if !ok {
		return nil, false
	}
	var parts []part
	for {
		name, rest, ok := parsePart(text)
		if !ok || name.kind != textPart || !strings.HasPrefix(rest, ":") {
			return nil, false
		}
		value, rest, ok := parsePart(rest[1:])
		if !ok || rest == "" {
			return nil, false
		}
		value.name = name.text
		if n := len(parts); n > 0 && parts[n-1].name >= value.name {
			return nil, false
		}
		parts = append(parts, value)
		switch {
		case rest == "}":
			return parts, true
		case rest[0] != ',':
			return nil, false
		}
		text = rest[1:]
	}
}

// parsePart reads a JSON scalar from the start of text.
func parsePart(text string) (p part, rest string, ok bool) {
	switch {
	case text == "":
		return part{}, "", false
	case strings.HasPrefix(text, "true"):
		return part{kind: boolPart, num: 1}, text[4:], true
	case strings.HasPrefix(text, "false"):
		return part{kind: boolPart}, text[5:], true
	case text[0] != '"':
		end := 1
		for end < len(text) && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		n, err := strconv.ParseInt(text[:end], 10, 64)
		return part{kind: numPart, num: n}, text[end:], err == nil
	}
	escaped := false
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			p = part{kind: textPart, text: text[1:i]}
			if escaped && json.Unmarshal([]byte(text[:i+1]), &p.text) != nil {
				return part{}, "", false
			}
			return p, text[i+1:], true
		}
	}
	return part{}, "", false
}
