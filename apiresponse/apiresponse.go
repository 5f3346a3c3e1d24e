// Package apiresponse writes the answers that are not a resource's own: an error as
// a Status, and small objects in the media type the client asked for. It is the
// only place outside rest where a Go error becomes bytes on the wire.
package apiresponse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/audit"
	"github.com/keelson-dev/keelson/scheme"
)

// Media types that every API answer can have.
const (
	JSON     = "application/json"
	YAML     = "application/yaml"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// mediaTypes are the types, in the order in which messages list them.
var mediaTypes = [...]string{JSON, YAML, Protobuf}

// MediaTypes returns the offered types in the order in which messages list them.
func MediaTypes() []string { return mediaTypes[:] }

// protobufPrefix marks a serialized runtime.Unknown.
var protobufPrefix = []byte("k8s\x00")

// Message is an object that can be written in every media type.
type Message interface {
	Marshal() ([]byte, error)
}

// Holder is a ResponseWriter that bounds the memory of answers that wait for their clients.
type MemoryAccount interface {
	// Hold counts n bytes until the request ends, unless that is more than its user may have.
	Hold(n int64) bool
	// Charge counts n bytes until the request ends, in any case.
	Charge(n int64)
}

// Error answers err as a Status with its own code, in the type the client
// accepts, or else as JSON.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		requestTimeout(w, r)
		return
	}
	status := apierr.Status(err)
	audit.SetErrorStatus(r.Context(), status)
	h := w.Header()
	if after := apierr.RetryAfterSeconds(status); after != "" {
		h.Set("Retry-After", after)
	}
	mediaType, ok := Negotiate(ParseAccept(r.Header.Get("Accept")), mediaTypes[:])
	if !ok {
		mediaType = JSON
	}
	code := int(status.Code)
	if code == 0 {
		code = http.StatusInternalServerError
	}
	body, err := Encode(status, metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, mediaType)
	if err != nil {
		http.Error(w, "cannot encode the status: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if mediaType == JSON && WantsPretty(r) {
		body = Indent(body)
	}
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone; nobody is left to tell
}

// timedOut answers a request whose time is up, whatever else is wrong with it:
// the Status without a kind, as plain text.
func requestTimeout(w http.ResponseWriter, r *http.Request) {
	status := timeoutStatus()
	audit.SetResponseStatus(r.Context(), &status)
	GatewayTimeout(w)
}

func timeoutStatus() metav1.Status {
	return kerrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
}

// TimeUp answers a request whose time is up, in the place of its handler, which
// audits what it answers itself.
func GatewayTimeout(w http.ResponseWriter) {
	status := timeoutStatus()
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusGatewayTimeout)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}

// NotFoundPage answers a path that belongs to no API, as plain text.
func NotFoundPage(w http.ResponseWriter) {
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// sanitizer keeps an answer from looking like HTML.
var sanitizer = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// InternalServerError answers, as plain text, a request that could not be judged.
func InternalServerError(w http.ResponseWriter, r *http.Request, err error) {
	http.Error(w, sanitizer.Replace(fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err)), http.StatusInternalServerError)
}

// Encode returns obj in one of the media types. t is what the protobuf envelope
// says the object is.
func Encode(obj Message, t metav1.TypeMeta, mediaType string) ([]byte, error) {
	switch mediaType {
	case Protobuf:
		raw, err := obj.Marshal()
		if err != nil {
			return nil, err
		}
		unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: t.APIVersion, Kind: t.Kind}, Raw: raw}
		body, err := unknown.Marshal()
		if err != nil {
			return nil, err
		}
		return append(append(make([]byte, 0, len(protobufPrefix)+len(body)), protobufPrefix...), body...), nil
	case YAML:
		body, err := json.Marshal(obj)
		if err != nil {
			return nil, err
		}
		return scheme.JSONToYAML(body)
	case JSON:
		body, err := json.Marshal(obj)
		if err != nil {
			return nil, err
		}
		return append(body, '\n'), nil
	}
	return nil, errors.New("unknown media type " + mediaType)
}

// Indent returns JSON for a reader's eye, as pretty=true asks for.
func Indent(body []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, body, "", "  "); err != nil {
		return body
	}
	return out.Bytes()
}

// Pretty says whether the client wants indented JSON: by the pretty parameter or,
// without it, because a person reads what curl, wget and browsers show.
func WantsPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if v, ok := r.URL.Query()["pretty"]; ok && len(v) > 0 {
			on, _ := strconv.ParseBool(v[0])
			return on || v[0] == ""
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// NotAcceptable answers an Accept header that cannot be satisfied. Answers from
// routing have (empty) details, those from negotiation have none.
func NotAcceptable(message string, details bool) error {
	err := apierr.NotAcceptable(message)
	var s *kerrors.StatusError
	if details && errors.As(err, &s) {
		s.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}
