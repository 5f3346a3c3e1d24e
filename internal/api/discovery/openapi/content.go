package openapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
)

// content is a document for one reader. It is made when it is first read; a 304 response does not need it. A
// reader needs little memory of its own: all readers share the compressed text, and for a client that does not
// accept gzip it is unpacked piece by piece.
type content struct {
	load func() (*document, error)
	// unpack means that the content is the text itself. Otherwise the content is the compressed text.
	unpack bool

	document *document
	err      error
	offset   int64        // of the next byte to read
	unzip    *gzip.Reader // nil before the first byte of the text is read
	unzipped int64        // how many bytes unzip has delivered
}

func (c *content) ready() error {
	if c.document == nil && c.err == nil {
		c.document, c.err = c.load()
	}
	return c.err
}

func (c *content) size() int64 {
	if c.unpack {
		return c.document.size
	}
	return int64(len(c.document.compressed))
}

// Seek implements io.Seeker.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekCurrent:
		offset += c.offset
	case io.SeekEnd:
		offset += c.size()
	}
	if offset < 0 {
		return 0, errors.New("openapi: seek to a negative position")
	}
	c.offset = offset
	return offset, nil
}

// Read implements io.Reader.
func (c *content) Read(b []byte) (n int, err error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	if c.offset >= c.size() {
		return 0, io.EOF
	}
	if !c.unpack {
		n = copy(b, c.document.compressed[c.offset:])
		c.offset += int64(n)
		return n, nil
	}
	if err := c.unpackTo(c.offset); err != nil {
		return 0, err
	}
	n, err = c.unzip.Read(b)
	c.unzipped += int64(n)
	c.offset = c.unzipped
	return n, err
}

// unpackTo positions unzip so that its next byte is the one at offset. To go back, it unpacks from the first byte
// again.
func (c *content) unpackTo(offset int64) (err error) {
	if c.unzip == nil || offset < c.unzipped {
		if c.unzip, err = gzip.NewReader(bytes.NewReader(c.document.compressed)); err != nil {
			return err
		}
		c.unzipped = 0
	}
	n, err := io.CopyN(io.Discard, c.unzip, offset-c.unzipped)
	c.unzipped += n
	return err
}

// errorReplacer replaces the response of http.ServeContent if the content cannot be made.
type errorReplacer struct {
	http.ResponseWriter
	content *content
	fail    func(error)
	failed  bool
}

func (r *errorReplacer) WriteHeader(status int) {
	if r.content.err != nil {
		r.failed = true
		r.fail(r.content.err)
		return
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *errorReplacer) Write(b []byte) (int, error) {
	if r.failed {
		return len(b), nil
	}
	return r.ResponseWriter.Write(b)
}
