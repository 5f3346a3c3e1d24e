package openapi

import (
	"bytes"
	"net/http"
)

// lazyContent is a document that is made when it is first read. A 304 response does not need
// it.
type lazyContent struct {
	load   func() ([]byte, error)
	reader *bytes.Reader
	err    error
}

func (c *lazyContent) ready() error {
	if c.reader == nil && c.err == nil {
		var text []byte
		if text, c.err = c.load(); c.err == nil {
			c.reader = bytes.NewReader(text)
		}
	}
	return c.err
}

func (c *lazyContent) Seek(offset int64, whence int) (int64, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	return c.reader.Seek(offset, whence)
}

func (c *lazyContent) Read(b []byte) (int, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	return c.reader.Read(b)
}

// errorReplacer replaces the response of http.ServeContent if the content cannot be made.
type errorReplacer struct {
	http.ResponseWriter
	content *lazyContent
	fail    func(error)
	failed  bool
}

func (f *errorReplacer) WriteHeader(status int) {
	if f.content.err != nil {
		f.failed = true
		f.fail(f.content.err)
		return
	}
	f.ResponseWriter.WriteHeader(status)
}

func (f *errorReplacer) Write(b []byte) (int, error) {
	if f.failed {
		return len(b), nil
	}
	return f.ResponseWriter.Write(b)
}
