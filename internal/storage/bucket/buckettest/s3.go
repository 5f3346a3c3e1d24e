package buckettest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// mostSkew is how far the time of a request may be from that of the service, as for S3.
	mostSkew = 15 * time.Minute
	// pageSize is the number of objects in a page of a list. It is small, so that tests have several pages.
	pageSize = 50
)

// S3 is an S3 service in memory, with one bucket of any name. It has the requests of a bucket.Bucket, checks the conditions and the times
// of requests, and checks no signatures.
type S3 struct {
	// Unconditional makes the service ignore the conditions of requests, as some services do.
	Unconditional bool

	mu      sync.Mutex // guards the fields below
	objects map[string]s3Object
	uploads map[string]map[int][]byte // the parts, by the identifier of the upload
}

type s3Object struct {
	etag string
	body []byte
}

// NewS3 returns an empty service.
func NewS3() *S3 { return &S3{objects: map[string]s3Object{}, uploads: map[string]map[int][]byte{}} }

// s3Error is the error of a request.
type s3Error struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	status  int
}

var (
	errSkewed       = &s3Error{Code: "RequestTimeTooSkewed", status: http.StatusForbidden}
	errNoKey        = &s3Error{Code: "NoSuchKey", status: http.StatusNotFound}
	errNoUpload     = &s3Error{Code: "NoSuchUpload", status: http.StatusNotFound}
	errPrecondition = &s3Error{Code: "PreconditionFailed", status: http.StatusPreconditionFailed}
	errUnsupported  = &s3Error{Code: "NotImplemented", status: http.StatusNotImplemented}
)

// ServeHTTP implements http.Handler. A request takes effect as a whole or not at all.
func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	failed, answer := s.answer(w.Header(), r, body)
	switch {
	case failed != nil:
		w.WriteHeader(failed.status)
		_ = xml.NewEncoder(w).Encode(failed)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = w.Write(answer)
	}
}

func (s *S3) answer(h http.Header, r *http.Request, body []byte) (*s3Error, []byte) {
	if sent, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err != nil || time.Since(sent).Abs() > mostSkew {
		return errSkewed, nil
	}
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && key == "":
		return nil, s.list(q.Get("prefix"), q.Get("continuation-token"))
	case r.Method == http.MethodGet:
		o, ok := s.objects[key]
		if !ok {
			return errNoKey, nil
		}
		h.Set("ETag", o.etag)
		return nil, o.body
	case r.Method == http.MethodPost && q.Has("uploads"):
		id := rand.Text()
		s.uploads[id] = map[int][]byte{}
		return nil, encodeXML(initiated{UploadID: id})
	case q.Has("uploadId"):
		return s.upload(h, r, key, body)
	case r.Method == http.MethodPut:
		if err := s.condition(key, r.Header); err != nil {
			return err, nil
		}
		h.Set("ETag", s.put(key, body))
		return nil, nil
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		return nil, nil
	}
	return errUnsupported, nil
}

// condition checks If-Match and If-None-Match of a PUT.
func (s *S3) condition(key string, h http.Header) *s3Error {
	o, ok := s.objects[key]
	match := h.Get("If-Match")
	switch {
	case s.Unconditional:
	case match != "" && !ok:
		return errNoKey
	case match != "" && match != o.etag, h.Get("If-None-Match") == "*" && ok:
		return errPrecondition
	}
	return nil
}

func (s *S3) put(key string, body []byte) (etag string) {
	etag = fmt.Sprintf(`"%x"`, sha256.Sum256(body))
	s.objects[key] = s3Object{etag, body}
	return etag
}

// upload answers the requests of a multipart upload that has begun.
func (s *S3) upload(h http.Header, r *http.Request, key string, body []byte) (*s3Error, []byte) {
	q := r.URL.Query()
	id := q.Get("uploadId")
	parts, ok := s.uploads[id]
	if !ok {
		return errNoUpload, nil
	}
	switch r.Method {
	case http.MethodPut:
		n, _ := strconv.Atoi(q.Get("partNumber")) // 0 is no part of the list of a client
		parts[n] = body
		h.Set("ETag", fmt.Sprintf(`"part-%d"`, n))
	case http.MethodPost:
		var whole []byte
		for _, n := range slices.Sorted(maps.Keys(parts)) {
			whole = append(whole, parts[n]...)
		}
		delete(s.uploads, id)
		return nil, encodeXML(completed{ETag: s.put(key, whole)})
	case http.MethodDelete:
		delete(s.uploads, id)
	}
	return nil, nil
}

// list returns a page of the objects whose keys begin with a prefix, after a key.
func (s *S3) list(prefix, after string) []byte {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(key string) bool {
		return !strings.HasPrefix(key, prefix) || cmp.Compare(key, after) <= 0
	})
	page := listed{IsTruncated: len(keys) > pageSize}
	if page.IsTruncated {
		keys = keys[:pageSize]
		page.Next = keys[pageSize-1]
	}
	for _, key := range keys {
		page.Contents = append(page.Contents, listedObject{key, len(s.objects[key].body)})
	}
	return encodeXML(page)
}

// These are the answers in XML.
type (
	initiated struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	completed struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}
	listed struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		Next        string `xml:"NextContinuationToken,omitempty"`
		Contents    []listedObject
	}
	listedObject struct {
		Key  string
		Size int
	}
)

func encodeXML(v any) []byte {
	var b bytes.Buffer
	if err := xml.NewEncoder(&b).Encode(v); err != nil {
		panic(err) // all of them can be encoded
	}
	return b.Bytes()
}
