package request

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"unicode"
)

// maxWarningBytes bounds the Warning headers of one answer, as kube-apiserver does.
const maxWarningBytes = 4 * 1024

// Warnings collects the warnings for one answer; each is sent once, in the order
// it came, as a Warning header with code 299 (RFC 7234 section 5.5).
type Warnings struct {
	mu   sync.Mutex
	seen map[string]bool
	list []string
}

// Warn adds a warning for the client of the request. It is dropped if the Info of ctx has no Warnings, or if there is no
// Info.
func Warn(ctx context.Context, text string) {
	i := InfoFrom(ctx)
	if i == nil || i.Warnings == nil || text == "" {
		return
	}
	w := i.Warnings
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[text] {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.list = append(w.list, text)
}

// WriteHeaders adds the headers; it is called before the answer's status is
// written.
func (w *Warnings) WriteHeaders(h http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := 0
	for _, text := range w.list {
		value := fmt.Sprintf(`299 - "%s"`, quote(text))
		if total += len(value); total > maxWarningBytes {
			return
		}
		h.Add("Warning", value)
	}
}

// quote escapes what a quoted-string may not have (RFC 7230 section 3.2.6).
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsControl(r):
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
