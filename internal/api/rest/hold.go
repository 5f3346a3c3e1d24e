package rest

import (
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// An answer whose client does not read it stays in memory until the request's time is
// up. What it takes there is counted before its status is sent. Bytes that the cache has
// anyhow are written from there and are not counted.

const (
	// freeMemory is how many bytes of an answer are not counted: the ResponseWriter
	// takes them over, and the request ends.
	freeMemory = 4 << 10
	// mostHeld is the most that is counted at a time, a quarter of what there is, so that
	// no answer is too large to be given at all.
	mostHeld = 32 << 20
)

// hold counts n bytes of memory that an answer takes until its client has read it. It is
// called before the status is sent. The error is 429 for a read whose user has too many
// answers that are not read. A write is never refused here, because it has happened.
func hold(w http.ResponseWriter, r *http.Request, n int) error {
	holder, ok := w.(apiresponse.MemoryAccount)
	if !ok || n <= freeMemory {
		return nil
	}
	n = min(n, mostHeld)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		holder.Charge(int64(n))
		return nil
	}
	if !holder.Hold(int64(n)) {
		const seconds = 1
		return kerrors.NewTooManyRequests("Too many requests, please try again later.", seconds)
	}
	return nil
}

// ownMemory is about how many bytes a page takes that the cache does not have: the list of
// its objects, and the objects and their encodings where the cache does not keep them.
func (s *served) ownMemory(p *page) int {
	const pointer, encodings = 8, 3
	n := pointer * len(p.objects)
	if p.own {
		n += encodings * s.listSize(p)
	}
	return n
}
