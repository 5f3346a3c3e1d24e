package request

import (
	"bytes"
	"io"
)

// Body is a body that has been read. It is also the Body of the http.Request.
type Body struct {
	bytes.Reader
	content []byte
	err     error
}

// NewBody returns a body of content. Reading it ends with err; nil means io.EOF. The Body owns content.
func NewBody(content []byte, err error) *Body {
	b := &Body{content: content, err: err}
	b.Reset(content)
	return b
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF && b.err != nil {
		err = b.err
	}
	return n, err
}

// WriteTo implements io.WriterTo.
func (b *Body) WriteTo(w io.Writer) (int64, error) {
	n, err := b.Reader.WriteTo(w)
	if err == nil {
		err = b.err
	}
	return n, err
}

// Take returns the whole body, and the error with which reading it ended. The caller owns the slice. The Body does
// not keep it, and has no content from then on: otherwise it would stay in memory while a client reads the
// response slowly.
func (b *Body) Take() ([]byte, error) {
	content := b.content
	b.content = nil
	b.Reset(nil)
	return content, b.err
}

// Close implements io.Closer.
func (b *Body) Close() error { return nil }
