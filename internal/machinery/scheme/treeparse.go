package scheme

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxTreeDepth is the deepest nesting that ParseTree accepts.
const maxTreeDepth = 500

// ParseTree decodes a JSON object like UnmarshalTree, but faster. It returns false for
// documents that are not valid or have duplicate members; the general decoder handles those.
// The strings of the result share memory.
func ParseTree(doc []byte) (map[string]any, bool) {
	p := treeParsers.Get().(*treeParser)
	defer p.release()
	p.text = string(doc)
	p.space()
	v, ok := p.value(0)
	p.space()
	tree, isMap := v.(map[string]any)
	return tree, ok && isMap && p.at == len(p.text)
}

var treeParsers = sync.Pool{New: func() any { return new(treeParser) }}

type treeParser struct {
	text string
	at   int
	// members has the members of the objects, and items the elements of the lists, that are not
	// yet complete. A map is made when its size is known.
	members []treeMember
	items   []any
}

type treeMember struct {
	name  string
	value any
}

// release puts p back into the pool, unless it has become large.
func (p *treeParser) release() {
	const most = 1024
	if cap(p.members) > most || cap(p.items) > most {
		return
	}
	clear(p.members[:cap(p.members)])
	clear(p.items[:cap(p.items)])
	*p = treeParser{members: p.members[:0], items: p.items[:0]}
	treeParsers.Put(p)
}

func (p *treeParser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// take skips c and the white space after it, if c is next.
func (p *treeParser) take(c byte) bool {
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	p.space()
	return true
}

// value decodes the next value.
func (p *treeParser) value(depth int) (any, bool) {
	if p.at == len(p.text) || depth > maxTreeDepth {
		return nil, false
	}
	switch p.text[p.at] {
	case '{':
		return p.object(depth)
	case '[':
		return p.list(depth)
	case '"':
		return p.string()
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	}
	return p.number()
}

func (p *treeParser) word(w string) bool {
	ok := strings.HasPrefix(p.text[p.at:], w)
	p.at += len(w)
	return ok
}

func (p *treeParser) object(depth int) (any, bool) {
	p.take('{')
	start := len(p.members)
	for first := true; !p.take('}'); first = false {
		if !first && !p.take(',') {
			return nil, false
		}
		name, ok := p.string()
		p.space()
		if !ok || !p.take(':') {
			return nil, false
		}
		v, ok := p.value(depth + 1)
		p.space()
		if !ok {
			return nil, false
		}
		p.members = append(p.members, treeMember{name, v})
	}
	own := p.members[start:]
	out := make(map[string]any, len(own))
	for _, m := range own {
		out[m.name] = m.value
	}
	p.members = p.members[:start]
	return out, len(out) == len(own)
}

func (p *treeParser) list(depth int) (any, bool) {
	p.take('[')
	start := len(p.items)
	for first := true; !p.take(']'); first = false {
		if !first && !p.take(',') {
			return nil, false
		}
		v, ok := p.value(depth + 1)
		p.space()
		if !ok {
			return nil, false
		}
		p.items = append(p.items, v)
	}
	out := append([]any{}, p.items[start:]...)
	p.items = p.items[:start]
	return out, true
}

// string decodes a string. Strings with escapes or non-ASCII characters take longer.
func (p *treeParser) string() (string, bool) {
	if p.at == len(p.text) || p.text[p.at] != '"' {
		return "", false
	}
	start := p.at + 1
	plain := true
	for i := start; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			p.at = i + 1
			if plain {
				return p.text[start:i], true
			}
			return unquote(p.text[start-1 : p.at])
		case c < ' ':
			return "", false
		case c == '\\':
			i++
			plain = false
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return "", false
}

func unquote(text string) (out string, ok bool) {
	return out, json.Unmarshal([]byte(text), &out) == nil
}

// number decodes a number as int64 if possible, otherwise as float64.
func (p *treeParser) number() (any, bool) {
	start, whole := p.at, true
	p.skip('-')
	if !p.skip('0') && !p.digits() {
		return nil, false
	}
	if p.skip('.') {
		whole = false
		if !p.digits() {
			return nil, false
		}
	}
	if p.skip('e') || p.skip('E') {
		whole = false
		if !p.skip('+') {
			p.skip('-')
		}
		if !p.digits() {
			return nil, false
		}
	}
	text := p.text[start:p.at]
	if whole {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, true
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if f == 0 {
		f = 0 // not -0, which kube-apiserver stores, but reads again as 0
	}
	return f, err == nil
}

func (p *treeParser) skip(c byte) bool {
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

func (p *treeParser) digits() bool {
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at > start
}
