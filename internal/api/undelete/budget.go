package undelete

import (
	"context"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxExamined is the largest number of objects and owners that are looked at for an answer, also objects that a selector does not select.
	maxExamined = 200_000
	// heldAtOnce is the number of bytes that budget.hold collects before it calls count.
	heldAtOnce = 64 << 10
)

// budget limits the memory and the number of objects that one answer needs. After the first refusal, all calls return
// its error.
type budget struct {
	ctx      context.Context
	count    func(bytes int) error // counts memory for the user; nil counts nothing
	held     int                   // bytes that are not counted yet
	examined int
	err      error
}

// hold counts bytes of memory for the user. It collects them, and calls count for heldAtOnce bytes or more together.
func (b *budget) hold(bytes int) error {
	if b.held += max(bytes, 0); b.held >= heldAtOnce && b.count != nil && b.err == nil {
		b.err = b.count(b.held)
		b.held = 0
	}
	return b.err
}

// examine counts an object or an owner that is looked at.
func (b *budget) examine() error {
	if b.examined++; b.examined > maxExamined && b.err == nil {
		b.err = kerrors.NewBadRequest(fmt.Sprintf("more than %d objects would have to be looked at; choose some of them", maxExamined))
	}
	if b.err != nil {
		return b.err
	}
	return b.ctx.Err()
}
