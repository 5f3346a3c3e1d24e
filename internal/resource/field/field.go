// Package field has the paths of fields for the validation in internal/resource/*, the errors that name them, and the
// rules that many kinds share.
//
// It replaces the package of the same name of k8s.io/apimachinery: there every step of a path is allocated by itself,
// and a valid Pod, about which nothing has to be said, needs two hundred steps. Here the steps of one validation are
// allocated many at a time. Errors and lists of errors are those of k8s.io/apimachinery.
package field

import (
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The errors of k8s.io/apimachinery.
type (
	Error     = field.Error
	ErrorList = field.ErrorList
	// OmitValueType marks an error without a value.
	OmitValueType = field.OmitValueType
)

// Path is the path of a field: its last step, and the path before it. All paths that are made from one NewPath share
// memory, so only one goroutine may use them at a time. A nil *Path is an empty path, of which children can be made.
type Path struct {
	parent *Path
	name   string // of a field, or the key of a map or list
	kind   kind
	index  int32 // of a list
	steps  *steps
}

type kind uint8

const (
	named   kind = iota // .name
	keyed               // [name]
	indexed             // [index]
)

// steps are the paths that are not used yet, and the memory that Free gives back.
type steps struct {
	free []Path
	used *chunk // the last one first
}

// chunk is memory for paths.
type chunk struct {
	paths [moreSteps]Path
	next  *chunk
}

// chunks are not used by any path.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

// The numbers of paths that are allocated together: first, and later.
const (
	// Most objects need few paths: the first block is allocated for each NewPath, the later ones come from a
	// pool.
	firstSteps = 4
	moreSteps  = 64
)

// NewPath returns the path of a field of an object; more are the names of fields in that field.
func NewPath(name string, more ...string) *Path {
	var p *Path
	return p.Child(name, more...)
}

// step returns a path after p.
// The paths of a full block are not moved when the next one begins, so pointers to them stay valid.
func (p *Path) step() *Path {
	var s *steps
	if p != nil {
		s = p.steps
	} else {
		s = &steps{free: make([]Path, firstSteps)}
	}
	if len(s.free) == 0 {
		c := chunks.Get().(*chunk)
		c.next, s.used = s.used, c
		s.free = c.paths[:]
	}
	next := &s.free[0]
	s.free = s.free[1:]
	next.parent, next.steps = p, s
	return next
}

// Free lets other validations use the memory of p and of all paths that were made from the same NewPath. None of them may
// be used afterwards. Errors do not need them: they have the text of their path. Call it where the validation of a valid object
// makes many paths.
// Without Free the memory is left to the garbage collector, which is only slower.
func (p *Path) Free() {
	s := p.steps
	for c := s.used; c != nil; {
		next := c.next
		*c = chunk{}
		chunks.Put(c)
		c = next
	}
	*s = steps{}
}

// Child returns the path of a field of p; more are the names of fields in that field.
func (p *Path) Child(name string, more ...string) *Path {
	next := p.step()
	next.name = name
	for _, name := range more {
		next = next.step()
		next.name = name
	}
	return next
}

// Index returns the path of an element of the list p.
func (p *Path) Index(index int) *Path {
	next := p.step()
	next.kind, next.index = indexed, int32(index)
	return next
}

// Key returns the path of the entry key of the map p.
func (p *Path) Key(key string) *Path {
	next := p.step()
	next.kind, next.name = keyed, key
	return next
}

// String returns the path as error messages have it, such as spec.containers[0].name.
func (p *Path) String() string {
	if p == nil {
		return "<nil>" // as k8s.io/apimachinery
	}
	b := &strings.Builder{}
	p.write(b)
	return b.String()
}

func (p *Path) write(b *strings.Builder) {
	if p.parent != nil {
		p.parent.write(b)
	}
	switch p.kind {
	case named:
		if p.parent != nil {
			b.WriteByte('.')
		}
		b.WriteString(p.name)
	case keyed:
		b.WriteString("[" + p.name + "]")
	case indexed:
		b.WriteString("[" + strconv.Itoa(int(p.index)) + "]")
	}
}

// K8s returns the same path for functions of k8s.io/apimachinery.
// It allocates every step, so it is called only for an error or for a rule of k8s.io/apimachinery.
func (p *Path) K8s() *field.Path {
	if p == nil {
		return nil
	}
	before := p.parent.K8s()
	switch {
	case p.kind == keyed:
		return before.Key(p.name)
	case p.kind == indexed:
		return before.Index(int(p.index))
	case before == nil:
		return field.NewPath(p.name)
	}
	return before.Child(p.name)
}

// Duplicate returns the error of a value that another element of a list or map has too.
func Duplicate(p *Path, value any) *Error { return field.Duplicate(p.K8s(), value) }

// Forbidden returns the error of a field that must not be set, or not in this way.
func Forbidden(p *Path, detail string) *Error { return field.Forbidden(p.K8s(), detail) }

// InternalError returns an error of the server.
func InternalError(p *Path, err error) *Error { return field.InternalError(p.K8s(), err) }

// Invalid returns the error of a value that breaks a rule.
func Invalid(p *Path, value any, detail string) *Error {
	return field.Invalid(p.K8s(), value, detail)
}

// NotFound returns the error of a value that names something which does not exist.
func NotFound(p *Path, value any) *Error { return field.NotFound(p.K8s(), value) }

// NotSupported returns the error of a value that is not one of a set.
func NotSupported[T ~string](p *Path, value any, valid []T) *Error {
	return field.NotSupported(p.K8s(), value, valid)
}

// Required returns the error of a field that must be set.
func Required(p *Path, detail string) *Error { return field.Required(p.K8s(), detail) }

// TooLong returns the error of a value that is longer than limit, in bytes.
func TooLong(p *Path, value any, limit int) *Error {
	return field.TooLong(p.K8s(), value, limit)
}

// TooMany returns the error of a list or map with more than limit elements.
func TooMany(p *Path, actual, limit int) *Error {
	return field.TooMany(p.K8s(), actual, limit)
}
