package request

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Limits of the Warning headers of one answer, in characters, as in kube-apiserver. If all warnings together are longer than
// maxWarnings, each is cut after maxWarning, and none begins behind maxWarnings.
const (
	maxWarnings = 4 * 1024
	maxWarning  = 256
)

// Warnings collects the warnings for one answer; each is sent once, in the order
// it came, as a Warning header with code 299 (RFC 7234 section 5.5).
type Warnings struct {
	mu   sync.Mutex
	seen map[string]bool
	list []string
}

// Warn adds a warning for the client of the request. It does nothing if ctx has no Info, or if the Info has no
// Warnings. As in kube-apiserver, it drops a text that a header cannot contain: one with control characters or
// invalid UTF-8.
func Warn(ctx context.Context, text string) {
	i := InfoFrom(ctx)
	if i == nil || i.Warnings == nil || text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
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
		total += utf8.RuneCountInString(text)
	}
	most := total
	if total > maxWarnings {
		most = maxWarning
	}
	sent := 0
	for _, text := range w.list {
		if sent >= maxWarnings {
			return
		}
		text, length := shorten(text, most)
		sent += length
		h.Add("Warning", `299 - "`+quote(text)+`"`)
	}
}

// shorten returns at most the first most characters of a text, and their number.
func shorten(text string, most int) (string, int) {
	n := 0
	for i := range text {
		if n == most {
			return text[:i], n
		}
		n++
	}
	return text, n
}

// quote escapes the characters that a quoted-string may not contain (RFC 7230 section 3.2.6).
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
