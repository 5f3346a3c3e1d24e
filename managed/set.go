package managed

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// A set is a set of field paths as a tree, the form that fieldsV1 has. Sets are not
// changed once they are built, and share subtrees.
type set struct {
	// items are in the order in which fieldsV1 lists them.
	items []item
}

// An item is one step of the paths of a set.
type item struct {
	step step
	// member says that the path that ends here is in the set; sub holds the longer
	// ones and is nil where there are none.
	member bool
	sub    *set
}

// A step is one element of a path.
type step struct {
	kind stepKind
	// name is a field's.
	name string
	// parts are a list item's keys by name, or the one value (without a name) of a
	// set's item.
	parts []part
}

type stepKind uint8

// The kinds in the order in which they sort.
const (
	fieldStep stepKind = iota
	keyStep
	valueStep
)

// A part is a scalar with a name.
type part struct {
	name string
	kind partKind
	text string
	num  int64
}

type partKind uint8

// The kinds in the order in which they sort. Numbers with fractions are left to the
// general algorithm.
const (
	numPart partKind = iota
	textPart
	boolPart
)

func (p part) compare(q part) int {
	if c := strings.Compare(p.name, q.name); c != 0 {
		return c
	}
	if c := cmp.Compare(p.kind, q.kind); c != 0 {
		return c
	}
	if p.kind == textPart {
		return strings.Compare(p.text, q.text)
	}
	return cmp.Compare(p.num, q.num)
}

func (s *step) compare(t *step) int {
	if c := cmp.Compare(s.kind, t.kind); c != 0 {
		return c
	}
	if s.kind == fieldStep {
		return strings.Compare(s.name, t.name)
	}
	return compareParts(s.parts, t.parts)
}

func compareParts(p, q []part) int {
	for i := range min(len(p), len(q)) {
		if c := p[i].compare(q[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(p), len(q))
}

// find returns where the step is or belongs.
func (s *set) find(t *step) (int, bool) {
	n := len(s.items)
	if n == 0 {
		return 0, false
	}
	// Sets are mostly built in order.
	switch c := s.items[n-1].step.compare(t); {
	case c < 0:
		return n, false
	case c == 0:
		return n - 1, true
	}
	lo, hi := 0, n-1
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := s.items[mid].step.compare(t); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// at returns the item of the step, which it adds if need be: only while s is built.
func (s *set) at(t *step) *item {
	i, found := s.find(t)
	if !found {
		if s.items == nil {
			s.items = make([]item, 0, 4)
		}
		if i == len(s.items) {
			s.items = append(s.items, item{step: *t})
		} else {
			s.items = slices.Insert(s.items, i, item{step: *t})
		}
	}
	return &s.items[i]
}

func (s *set) empty() bool { return s == nil || len(s.items) == 0 }

// contains says whether every path of t is in s.
func (s *set) contains(t *set) bool {
	if t.empty() || s == t {
		return true
	}
	if s.empty() {
		return false
	}
	i := 0
	for j := range t.items {
		want := &t.items[j]
		for i < len(s.items) && s.items[i].step.compare(&want.step) < 0 {
			i++
		}
		if i == len(s.items) || s.items[i].step.compare(&want.step) != 0 {
			return false
		}
		if want.member && !s.items[i].member || !s.items[i].sub.contains(want.sub) {
			return false
		}
	}
	return true
}

// meets says whether a path is in both s and t.
func (s *set) meets(t *set) bool {
	if s.empty() || t.empty() {
		return false
	}
	i, j := 0, 0
	for i < len(s.items) && j < len(t.items) {
		a, b := &s.items[i], &t.items[j]
		switch c := a.step.compare(&b.step); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			if a.member && b.member || a.sub.meets(b.sub) {
				return true
			}
			i++
			j++
		}
	}
	return false
}

// minus returns s without the paths of t; s itself where that is the same.
func (s *set) minus(t *set) *set {
	if !s.meets(t) {
		return s
	}
	out := &set{items: make([]item, 0, len(s.items))}
	j := 0
	for i := range s.items {
		kept := s.items[i]
		for j < len(t.items) && t.items[j].step.compare(&kept.step) < 0 {
			j++
		}
		if j < len(t.items) && t.items[j].step.compare(&kept.step) == 0 {
			kept.member = kept.member && !t.items[j].member
			kept.sub = kept.sub.minus(t.items[j].sub)
		}
		if kept.member || !kept.sub.empty() {
			out.items = append(out.items, kept)
		}
	}
	if len(out.items) == 0 {
		return nil
	}
	return out
}

// plus returns the paths of s and of t; s itself where t adds none.
func (s *set) plus(t *set) *set {
	switch {
	case s.contains(t):
		return s
	case s.empty():
		return t
	}
	out := &set{items: make([]item, 0, len(s.items)+len(t.items))}
	i, j := 0, 0
	for i < len(s.items) && j < len(t.items) {
		a, b := s.items[i], t.items[j]
		switch c := a.step.compare(&b.step); {
		case c < 0:
			out.items = append(out.items, a)
			i++
		case c > 0:
			out.items = append(out.items, b)
			j++
		default:
			out.items = append(out.items, item{step: a.step, member: a.member || b.member, sub: a.sub.plus(b.sub)})
			i++
			j++
		}
	}
	out.items = append(out.items, s.items[i:]...)
	out.items = append(out.items, t.items[j:]...)
	return out
}

// fields returns the set as fieldsV1; false where it holds text that is left to the
// general algorithm to escape.
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

// appendTo writes the step as it stands inside the quotes of a member name.
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

// appendEscaped writes text into a JSON string.
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

// appendTwiceEscaped writes text into a JSON string that stands in a JSON string.
// The inner one escapes what could be taken for HTML.
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

// parseSet reads fieldsV1. It takes only what fields would write.
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

// object reads the paths below a step; member says that the step itself is one.
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

// unescape undoes appendEscaped.
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
