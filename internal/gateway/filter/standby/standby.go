// Package standby is the filter of a server that follows another one (keelson standby --serve-stale). It marks each answer as old, and
// refuses what is not a read.
package standby

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// SecondsHeader is the header that tells programs how old an answer is, in seconds. Only answers of a standby have it.
const SecondsHeader = "Keelson-Standby-Seconds"

// State says how far a standby has followed.
type State struct {
	// Age is the time since the standby had everything that the copy of the other server had. How far that copy is behind is not known here.
	Age time.Duration
	// Revision is the last revision that the standby has. Changed is when it was made, zero if that is not known.
	Revision int64
	Changed  time.Time
	// Server is the name of the server that takes writes, "" if none is known.
	Server string
}

// String says how far the standby is behind.
func (s State) String() string {
	text := fmt.Sprintf("this server is a standby: it has what the copy had %.1f seconds ago, up to revision %d", s.Age.Seconds(), s.Revision)
	if !s.Changed.IsZero() {
		text += ", which was made at " + s.Changed.UTC().Format(time.RFC3339)
	}
	return text
}

// refusal is the error of a request that a standby does not answer.
func (s State) refusal() error {
	text := "this server is a standby, which only answers reads; "
	if s.Server == "" {
		text += "no server holds the lock of the copy at the moment"
	} else {
		text += "everything else is for the server that holds the lock of the copy: " + s.Server
	}
	return apierr.New(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, text)
}

// New returns the filter; it is nil if state is nil. Requests have been authenticated, so that only users learn where the other server is.
//
// Reads are answered: get, list and watch of what is in the store, and reviews, which are created and not stored. Connections to nodes,
// pods and services are no reads of the store, and a token is more than an answer, so these are refused like writes. What is not about a
// resource (health, metrics, discovery) is about this process and not marked.
func New(state func() State) func(http.Handler) http.Handler {
	if state == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now, info := state(), request.InfoFrom(r.Context())
			answered := r.Method == http.MethodGet || r.Method == http.MethodHead || strings.HasPrefix(r.URL.Path, "/debug/")
			if info.IsResource() {
				seconds := now.Age.Seconds()
				w.Header().Set(SecondsHeader, strconv.FormatFloat(seconds, 'f', 1, 64))
				request.Warn(r.Context(), fmt.Sprintf("this server is a standby: this answer is %.0f seconds old", math.Ceil(seconds)))
				answered = isRead(info)
			}
			if !answered {
				w.Header().Set("Retry-After", "1")
				apiresponse.Error(w, r, now.refusal())
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// connecting are the subresources that connect to a node, a pod or a service.
var connecting = []string{"attach", "exec", "log", "portforward", "proxy"}

// isRead reports whether a request only reads the store.
func isRead(info *request.Info) bool {
	switch info.Verb {
	case "get", "list", "watch":
		return !slices.Contains(connecting, info.Subresource)
	case "create":
		return (info.Group == "authorization.k8s.io" || info.Group == "authentication.k8s.io") && strings.HasSuffix(info.Resource, "reviews")
	}
	return false
}
