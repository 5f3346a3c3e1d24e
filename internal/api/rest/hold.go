package rest

import (
	"net/http"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

// hold counts n bytes of memory that a response uses until its client has read it. Bytes in the cache are written from
// there and are not counted. hold is called before the status is sent. The error is 429 for a read if the user has too
// many unread responses. A write is never refused here, because it has happened.
func hold(r *http.Request, n int) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		request.ChargeMemory(r.Context(), n)
		return nil
	}
	if !request.HoldMemory(r.Context(), n) {
		return apierr.TooManyUnread()
	}
	return nil
}

// ownMemory returns about how many bytes a page takes outside of the cache: for the list of its objects, and, if
// the cache does not keep them, for the objects and their encodings.
func (s *served) ownMemory(p *page) int {
	const pointer, encodings = 8, 3
	n := pointer * len(p.objects)
	if p.own {
		n += encodings * s.listSize(p)
	}
	return n
}
