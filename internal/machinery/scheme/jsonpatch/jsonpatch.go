// Package jsonpatch applies JSON patches (RFC 6902) of clients, webhooks and policies. A library does the work.
// This package adds limits for the cost of a patch, and prevents the panics of the library. (Merge patches and the
// rest of PATCH requests are in package internal/api/write/patch.)
package jsonpatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	library "gopkg.in/evanphx/json-patch.v4"
)

const (
	// MaxCopyBytes limits the bytes that the copy operations of one patch add together (CVE-2019-1002100).
	MaxCopyBytes = 3 << 20
	// MaxPathBytes limits the depth of a path times the size of the document and the patch, in bytes: for each step of a
	// path everything below it is read and written again.
	MaxPathBytes = 64 << 20
	// MaxMoves limits the items of lists that a patch moves: inserting or removing an item at an index copies the whole
	// list.
	MaxMoves = 1 << 28
)

// limitCopies sets the only limit that the library has for copies. It is global to the process.
var limitCopies = sync.OnceFunc(func() { library.AccumulatedCopySizeLimit = MaxCopyBytes })

// Patch is a list of operations.
type Patch struct {
	operations library.Patch
	size       int // bytes of the patch
}

// DepthError is the refusal of a patch because a path in it is too deep for the size of the document and the patch.
type DepthError struct {
	Limit, Depth int // steps
}

func (e *DepthError) Error() string {
	return fmt.Sprintf("The allowed maximum depth of a path in this JSON patch is %d, got %d", e.Limit, e.Depth)
}

// MovesError is the refusal of a patch because it inserts or removes too many items of lists that are too long.
type MovesError struct {
	Items, List int // how many items are inserted or removed, and how many the longest list has
}

func (e *MovesError) Error() string {
	return fmt.Sprintf("This JSON patch inserts and removes %d items at indexes, which is too many for a list of %d items",
		e.Items, e.List)
}

// Decode decodes a patch. It does not check the operations; Apply does.
func Decode(body []byte) (Patch, error) {
	operations, err := library.DecodePatch(body)
	completeWholeDocument(operations)
	return Patch{operations: operations, size: len(body)}, err
}

// Operation is one operation of a patch that the server makes itself.
type Operation struct {
	Op, Path, From string
	// Value is JSON; nil for an operation without a value. The patch may keep the slice.
	Value []byte
}

// New returns a patch of operations. Unlike the library's decoder it distinguishes the value null from no value.
func New(list []Operation) (Patch, error) {
	p := Patch{operations: make(library.Patch, len(list))}
	for i, o := range list {
		op := library.Operation{}
		for name, text := range map[string]string{"op": o.Op, "path": o.Path, "from": o.From} {
			if name == "from" && text == "" {
				continue
			}
			quoted, err := json.Marshal(text)
			if err != nil {
				return Patch{}, err
			}
			op[name] = (*json.RawMessage)(&quoted)
			p.size += len(quoted)
		}
		if o.Value != nil {
			op["value"] = (*json.RawMessage)(&o.Value)
			p.size += len(o.Value)
		}
		p.operations[i] = op
	}
	completeWholeDocument(p.operations)
	return p, nil
}

// Len returns the number of operations.
func (p Patch) Len() int { return len(p.operations) }

// Apply returns doc with the changes of the patch. It changes neither of them; the result may share memory with both.
// The error is a *DepthError or a *MovesError, or describes the operation that cannot be applied.
func (p Patch) Apply(doc []byte) ([]byte, error) {
	limitCopies()
	if err := p.checkDepth(len(doc)); err != nil {
		return nil, err
	}
	if err := p.checkMoves(doc); err != nil {
		return nil, err
	}
	return p.operations.Apply(doc)
}

// IsTestFailed reports whether an error of Apply means that an operation "test" of the patch found another value.
func IsTestFailed(err error) bool { return errors.Is(err, library.ErrTestFailed) }

// completeWholeDocument adds the value null to operations on the whole document (path "") that have no value.
// Without it the library panics. For operations on other paths, the library itself takes null for a missing value.
func completeWholeDocument(operations library.Patch) {
	for _, op := range operations {
		if path, err := op.Path(); err != nil || path != "" {
			continue
		}
		if _, given := op["value"]; !given {
			op["value"] = nil // as null is decoded
		}
	}
}

// checkDepth refuses paths that are too deep for a document of that size.
func (p Patch) checkDepth(size int) error {
	limit := MaxPathBytes / max(size+p.size, 1)
	for _, op := range p.operations {
		for _, path := range []func() (string, error){op.Path, op.From} {
			if text, err := path(); err == nil && strings.Count(text, "/") > limit {
				return &DepthError{Limit: limit, Depth: strings.Count(text, "/")}
			}
		}
	}
	return nil
}

// checkMoves refuses patches that insert and remove too many items of long lists.
func (p Patch) checkMoves(doc []byte) error {
	items := 0
	for _, op := range p.operations {
		switch kind := op.Kind(); kind {
		case "add", "remove", "copy", "move":
			if endsWithIndex(op.Path) {
				items++
			}
			if kind == "move" && endsWithIndex(op.From) {
				items++
			}
		}
	}
	const shortest = 2 // bytes of an item with its comma
	if items*(max(len(doc), p.size)/shortest+items) <= MaxMoves {
		return nil
	}
	list := longestList(doc)
	for _, op := range p.operations {
		if value := op["value"]; value != nil {
			list = max(list, longestList(*value))
		}
	}
	if items*(list+items) > MaxMoves {
		return &MovesError{Items: items, List: list}
	}
	return nil
}

// endsWithIndex reports whether a path may name an item of a list.
func endsWithIndex(path func() (string, error)) bool {
	text, err := path()
	if err != nil {
		return false
	}
	_, err = strconv.Atoi(text[strings.LastIndexByte(text, '/')+1:])
	return err == nil
}

// longestList returns the number of items of the longest list in valid JSON; an empty list counts as one item.
func longestList(text []byte) int {
	longest, inString := 0, false
	var open []int // the items of the lists that are open so far, 0 for objects
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[':
			open = append(open, 1)
		case c == '{':
			open = append(open, 0)
		case c == ',' && len(open) > 0 && open[len(open)-1] > 0:
			open[len(open)-1]++
		case (c == ']' || c == '}') && len(open) > 0:
			longest = max(longest, open[len(open)-1])
			open = open[:len(open)-1]
		}
	}
	return longest
}
