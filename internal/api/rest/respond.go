package rest

import (
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/api/rest/gzipsplice"
	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// writeTyped answers one object that is not from the cache. head is used for protobuf only: JSON and CBOR have
// the kind of obj itself.
func writeTyped(
	w http.ResponseWriter, r *http.Request, code int, accepted negotiate.Accepted, head wire.EnvelopeHead,
	obj runtime.Object,
) error {
	if status, ok := obj.(*metav1.Status); ok {
		audit.SetResponseStatus(r.Context(), status)
	}
	if accepted.Media == scheme.Protobuf {
		body, err := scheme.EncodeEnvelope(head, obj)
		if err != nil {
			return err
		}
		return writeBody(w, r, code, accepted, body)
	}
	body, err := scheme.Marshal(obj)
	if err != nil {
		return err
	}
	return writeBody(w, r, code, accepted, append(body, '\n'))
}

// writeSuccess responds with the Status of a success.
func writeSuccess(
	w http.ResponseWriter, r *http.Request, code int, accepted negotiate.Accepted, status *metav1.Status,
) error {
	status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusSuccess
	return writeTyped(w, r, code, negotiate.Accepted{Media: accepted.Media, Pretty: accepted.Pretty}, statusProto, status)
}

// maxIndentation limits the bytes of indentation of a response, in addition to twice the size of its JSON.
// Otherwise the size of a deeply nested response would grow with the square of its depth.
const maxIndentation = 8 << 20

// writeBody sends an encoded body, and first indents JSON or converts it to YAML if the client requested that. It
// returns the error of hold.
func writeBody(w http.ResponseWriter, r *http.Request, code int, accepted negotiate.Accepted, body []byte) error {
	given := body
	switch {
	case (accepted.Media == scheme.YAML || accepted.Pretty) && scheme.Indentation(body) > maxIndentation+2*len(body):
		// A document of JSON is one of YAML too.
	case accepted.Media == scheme.YAML:
		if converted, err := scheme.JSONToYAML(body); err == nil {
			body = converted
		}
	case accepted.Media == scheme.CBOR:
		if converted, err := scheme.JSONToCBOR(body); err == nil {
			body = converted
		}
	case accepted.Media == scheme.JSON && accepted.Pretty:
		body = apiresponse.Indent(body)
	}
	// Both forms are in memory while the converted one is sent; sendBody counts that one.
	if len(given) > request.FreeMemory && &given[0] != &body[0] {
		if err := hold(r, cap(given)); err != nil {
			return err
		}
	}
	return sendBody(w, r, code, accepted.Media, body)
}

// sendBody sends a body without changes. It returns the error of hold.
func sendBody(w http.ResponseWriter, r *http.Request, code int, media scheme.Media, body []byte) error {
	zips := len(body) > gzipThreshold && apiresponse.AcceptsGzip(r)
	if len(body) > request.FreeMemory {
		memory := cap(body)
		if zips {
			memory += bufferSize
		}
		if err := hold(r, memory); err != nil {
			return err
		}
	}
	header := w.Header()
	header.Set("Content-Type", media.String())
	if zips {
		beginGzip(w, code)
		buf := getBuffer()
		defer putBuffer(buf)
		z := gzipsplice.NewWriter(w, chunk, *buf)
		_ = writeZipped(z, body) // Close returns it too
		_ = z.Close()            // the client is gone
		*buf = z.Buffer()
		return nil
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	// A HEAD gets the length that the body of a GET would have, and no body (RFC 9110 section 9.3.2).
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	return nil
}

// beginGzip sends the head of an answer whose body is compressed. Vary tells caches in between that another
// client may get the body without compression (RFC 9110 section 12.5.5).
func beginGzip(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	w.WriteHeader(code)
}

// bufferSize is the size of the buffers for bodies. A buffer is written when it has chunk bytes. The further
// quarter is for the item that fills it; longer items are not copied to the buffer (stream.item).
const bufferSize = chunk + chunk/4

// buffers hold response bodies while they are put together.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	// A pool with larger buffers would keep the memory of the largest responses.
	const keep = 1 << 20
	if cap(*b) > keep {
		return
	}
	*b = (*b)[:0]
	buffers.Put(b)
}

// requests reads what clients send.
type requests struct {
	formats       negotiate.Formats
	unsafeDeletes bool // objects that cannot be read may be deleted
}

// response negotiates the response of a request for objects of s, or of its
// subresources.
func (q requests) response(r *http.Request, info *request.Info, s *served) (negotiate.Accepted, error) {
	return q.formats.Response(r, s.form.endpoint(negotiate.Endpoint{
		Transforms: true,
		// Reviews and posts to subresources have no Table.
		NoTable: !s.Kind.HasVerb("list") || r.Method == http.MethodPost && info.Subresource != "",
		List:    info.Name == "" && r.Method == http.MethodGet,
	}))
}
