package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	// partSize is the size in bytes of the parts of a large object, except for the last one. S3 requires at least 5 MiB.
	partSize = 8 << 20
	// maxParts is the largest number of parts that S3 allows, so an object has at most 78 GiB.
	maxParts = 10_000
	// firstBuffer is the size in bytes of the buffer of a small object.
	firstBuffer = 64 << 10
	// abortLimit bounds how long the removal of a failed upload takes, also if the context of the upload has ended.
	abortLimit = 10 * time.Second
)

// Put implements Bucket. Objects larger than partSize are sent as multipart uploads. The S3 library has no part for this: its package
// transfermanager takes a reader, not a writer, and has no stable interface yet.
func (b *s3Bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := begin(ctx, name); err != nil {
		return b.fail("writing", name, err)
	}
	// The errors are explained where they come from, because write may add to them, and has others of its own.
	sending, stop := context.WithCancel(ctx)
	defer stop()
	u := &upload{bucket: b, ctx: sending, stop: stop, key: b.key(name)}
	complete := false
	defer func() {
		if !complete { // also if write panics
			u.abort()
		}
	}()
	err := write(u)
	if err == nil {
		err = explain(u.finish())
	}
	complete = err == nil
	return objectError("writing", name, b.url, err)
}

// upload is the writing of an object. It has at most two buffers of partSize: the one that is filled, and the one that is sent.
type upload struct {
	bucket *s3Bucket
	ctx    context.Context
	stop   func() // ends ctx
	key    *string

	buffer, spare []byte
	id            *string   // of the multipart upload, nil before there is one
	sending       chan sent // has one result when the part is sent; nil if none is being sent
	parts         []types.CompletedPart
	err           error // the first one, explained
}

type sent struct {
	etag *string
	err  error
}

// Write implements io.Writer.
func (u *upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if err := u.failed(); err != nil {
			return n, err
		}
		if len(u.buffer) == partSize {
			if u.err = explain(u.send()); u.err != nil {
				return n, u.err
			}
		}
		k := min(len(p)-n, partSize-len(u.buffer))
		u.buffer = append(grow(u.buffer, k), p[n:n+k]...)
		n += k
	}
	return n, nil
}

// grow returns a buffer that has room for n more bytes, and never has more than partSize.
func grow(b []byte, n int) []byte {
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	return append(make([]byte, 0, min(partSize, max(2*need, firstBuffer))), b...)
}

func (u *upload) failed() error {
	if u.err == nil {
		u.err = explain(u.ctx.Err())
	}
	return u.err
}

// send begins to send the buffer as a part, after the part before was sent.
func (u *upload) send() error {
	if u.id == nil {
		if err := u.create(); err != nil {
			return err
		}
	}
	if err := u.wait(); err != nil {
		return err
	}
	if len(u.parts) == maxParts {
		return fmt.Errorf("the object is larger than %d parts of %d bytes", maxParts, partSize)
	}
	in := &s3.UploadPartInput{
		Bucket: &u.bucket.bucket, Key: u.key, UploadId: u.id, PartNumber: new(int32(len(u.parts) + 1)), Body: bytes.NewReader(u.buffer),
	}
	u.sending = make(chan sent, 1)
	go func(result chan<- sent) {
		out, err := u.bucket.client.UploadPart(u.ctx, in)
		if err != nil {
			result <- sent{err: err}
			return
		}
		result <- sent{etag: out.ETag}
	}(u.sending)
	u.buffer, u.spare = u.spare[:0], u.buffer
	return nil
}

func (u *upload) create() error {
	ctx, cancel := context.WithTimeout(u.ctx, smallLimit)
	defer cancel()
	out, err := u.bucket.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &u.bucket.bucket, Key: u.key})
	if err != nil {
		return err
	}
	if aws.ToString(out.UploadId) == "" {
		return errNotS3
	}
	u.id = out.UploadId
	return nil
}

// wait waits for the part that is being sent.
func (u *upload) wait() error {
	if u.sending == nil {
		return nil
	}
	s := <-u.sending // it comes, because the connection fails without progress
	u.sending = nil
	if s.err == nil && aws.ToString(s.etag) == "" {
		s.err = errNotS3
	}
	if s.err != nil {
		return s.err
	}
	u.parts = append(u.parts, types.CompletedPart{ETag: s.etag, PartNumber: new(int32(len(u.parts) + 1))})
	return nil
}

// finish makes the object of what was written.
func (u *upload) finish() error {
	if err := u.failed(); err != nil {
		return err
	}
	if u.id == nil {
		out, err := u.bucket.client.PutObject(u.ctx, &s3.PutObjectInput{
			Bucket: &u.bucket.bucket, Key: u.key, Body: bytes.NewReader(u.buffer),
		})
		if err == nil && aws.ToString(out.ETag) == "" {
			err = errNotS3
		}
		return err
	}
	if err := errors.Join(u.send(), u.wait()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(u.ctx, smallLimit)
	defer cancel()
	out, err := u.bucket.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.bucket.bucket, Key: u.key, UploadId: u.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})
	if err == nil && aws.ToString(out.ETag) == "" {
		err = errNotS3
	}
	return err
}

// abort removes the parts of an upload that has failed. If that fails too, the parts stay until a rule of the bucket removes them.
func (u *upload) abort() {
	u.stop()
	if u.sending != nil {
		<-u.sending // its context has ended
	}
	if u.id != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortLimit)
		defer cancel()
		_, _ = u.bucket.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{ // the first error is returned
			Bucket: &u.bucket.bucket, Key: u.key, UploadId: u.id,
		})
	}
}

// swappedKey returns the key of an object of Swap.
func (b *s3Bucket) swappedKey(name string) *string { return new(b.prefix + name + swapped) }

// DeleteSwapped implements Bucket.
func (b *s3Bucket) DeleteSwapped(ctx context.Context, name string) error {
	return b.delete(ctx, name, b.swappedKey(name))
}

// Load implements Bucket. The tag is the ETag of the object, which for most services is a checksum of what is stored. Therefore the
// identifier of the version is stored with it: versions with the same content have different tags.
func (b *s3Bucket) Load(ctx context.Context, name string) (content []byte, tag string, err error) {
	v, tag, err := b.load(ctx, name)
	if err != nil {
		return nil, "", b.fail("reading", name, err)
	}
	return v.content, tag, nil
}

func (b *s3Bucket) load(ctx context.Context, name string) (v version, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, smallLimit)
	defer cancel()
	out, err := b.get(ctx, name, b.swappedKey(name))
	if err != nil {
		return v, "", err
	}
	defer out.Body.Close() // it was only read
	v, err = readVersion(out.Body)
	return v, *out.ETag, err
}

// Swap implements Bucket.
func (b *s3Bucket) Swap(ctx context.Context, name string, content []byte, tag string) (newTag string, err error) {
	if err := errors.Join(checkContent(content), begin(ctx, name)); err != nil {
		return "", b.fail("replacing", name, err)
	}
	newTag, err = b.swap(ctx, name, version{id: rand.Text(), content: content}, tag)
	return newTag, b.fail("replacing", name, err)
}

func (b *s3Bucket) swap(ctx context.Context, name string, v version, tag string) (newTag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, smallLimit)
	defer cancel()
	in := &s3.PutObjectInput{Bucket: &b.bucket, Key: b.swappedKey(name), Body: bytes.NewReader(v.encode())}
	if tag == "" {
		in.IfNoneMatch = new("*")
	} else {
		in.IfMatch = &tag
	}
	repeated := &countRepetitions{}
	out, err := b.client.PutObject(ctx, in, repeated.observe)
	switch status, code := apiCode(err); {
	case err == nil && aws.ToString(out.ETag) == "":
		return "", errNotS3
	case err == nil:
		return *out.ETag, nil
	case status == http.StatusPreconditionFailed, status == http.StatusConflict, tag != "" && notFound(err):
		return b.lost(ctx, name, v, repeated.n)
	case status == http.StatusNotImplemented, code == "NotImplemented":
		return "", ErrNoConditions
	}
	return "", err
}

// lost returns the result of a Swap that the service has refused because of its condition. If it was sent more than once, an earlier
// request may have succeeded although its answer was lost.
func (b *s3Bucket) lost(ctx context.Context, name string, v version, repetitions int) (tag string, err error) {
	if repetitions == 0 {
		return "", ErrChanged
	}
	now, tag, err := b.load(ctx, name)
	switch {
	case err == nil && now.id == v.id:
		return tag, nil
	case err != nil && !notFound(err):
		return "", fmt.Errorf("%w: %w", errUnknown, explain(err))
	}
	return "", errUnknown
}

// countRepetitions counts the repetitions of a request.
type countRepetitions struct {
	aws.Retryer
	n int
}

func (c *countRepetitions) observe(o *s3.Options) { c.Retryer, o.Retryer = o.Retryer, c }

// IsErrorRetryable implements aws.Retryer.
func (c *countRepetitions) IsErrorRetryable(err error) bool {
	again := c.Retryer.IsErrorRetryable(err)
	if again {
		c.n++
	}
	return again
}
