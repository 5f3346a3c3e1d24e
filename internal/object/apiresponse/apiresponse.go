// Package apiresponse writes responses that are not objects of a resource: errors as a Status,
// and small objects in the media type that the client accepts. Apart from package rest, it is
// the only place that converts a Go error to a response.
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

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

// Media types that every API response can have.
const (
	JSON     = "application/json"
	YAML     = "application/yaml"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// mediaTypes are the media types in the order in which error messages list them.
var mediaTypes = [...]string{JSON, YAML, Protobuf}

// MediaTypes returns the media types in the order in which error messages list them. The slice
// must not be changed.
func MediaTypes() []string { return mediaTypes[:] }

// protobufPrefix is the beginning of a serialized runtime.Unknown.
var protobufPrefix = []byte("k8s\x00")

// Message is an object that can be encoded in every media type.
type Message interface {
	Marshal() ([]byte, error)
}

// Error responds with err as a Status, in the media type that the client accepts, or in indented JSON
// if it accepts none of them.
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
	pretty := WantsPretty(r)
	if !ok {
		mediaType, pretty = JSON, true
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
	if mediaType == JSON && pretty {
		body = Indent(body)
	}
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error means that the client has gone away
}

// requestTimeout responds to a request whose deadline is over, and sets the status in the
// audit record.
func requestTimeout(w http.ResponseWriter, r *http.Request) {
	status := timeoutStatus()
	audit.SetResponseStatus(r.Context(), &status)
	GatewayTimeout(w)
}

func timeoutStatus() metav1.Status {
	return kerrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
}

// GatewayTimeout responds 504 with a Status without kind, as plain text, like kube-apiserver.
// It does not change the audit record. A handler that has timed out sets the record itself.
func GatewayTimeout(w http.ResponseWriter) {
	status := timeoutStatus()
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusGatewayTimeout)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone away
}

// NotFoundPage responds 404 as plain text, for a path that belongs to no API.
func NotFoundPage(w http.ResponseWriter) {
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// sanitizer escapes text so that a response does not look like HTML.
var sanitizer = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// InternalServerError responds 500 as plain text.
func InternalServerError(w http.ResponseWriter, r *http.Request, err error) {
	http.Error(w, sanitizer.Replace(fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err)),
		http.StatusInternalServerError)
}

// Encode encodes obj in a media type. t is the apiVersion and kind for the protobuf envelope.
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

// Indent returns indented JSON, without the newline at the end that other JSON has. It returns body unchanged if it is not valid JSON.
func Indent(body []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimRight(body, "\n"), "", "  "); err != nil {
		return body
	}
	return out.Bytes()
}

// WantsPretty reports whether the response has to be indented: by the parameter pretty or, without it, if the client is
// curl, wget or a browser.
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

// NotAcceptable returns the error 406. If details is true, it has empty details, as the errors
// of kube-apiserver's routing have.
func NotAcceptable(message string, details bool) error {
	err := apierr.NotAcceptable(message)
	var s *kerrors.StatusError
	if details && errors.As(err, &s) {
		s.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}
