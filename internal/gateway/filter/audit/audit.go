// Package audit has the filters that record requests in the audit log, as the audit
// policy configures it.
package audit

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/gateway/filter/auditid"
	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// Policy decides what is recorded about a request. user is nil if the request is not authenticated.
type Policy interface {
	For(i *request.Info, user *request.User) audit.Settings
}

// Auditor makes the two filters of auditing. If it is nil, its filters do nothing.
type Auditor struct {
	// Policy decides what is recorded. It is called once for each request.
	Policy Policy
	Sink   audit.Sink
	// NewObject returns an empty object of a kind, nil for an unknown kind. It is used to convert
	// protobuf responses to JSON.
	NewObject func(schema.GroupVersionKind) runtime.Object
	// Observe is called with the audit level of each request, Count for each event, and
	// Rejected for each request that is refused because its event could not be stored.
	Observe         func(audit.Level)
	Count, Rejected func()
	// MaxObjectBytes is the largest response body that is recorded, in bytes. 0 and values above maxCapture mean
	// maxCapture.
	MaxObjectBytes int64
}

// Begin returns the first of the two filters. It comes early in the chain, so that a request
// which a filter before authentication refuses is recorded too, with one event.
func (a *Auditor) Begin(next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := audit.NewRecord(a.Sink, a.Count, r.Header.Get(auditid.Header), time.Now())
		r = r.WithContext(audit.With(r.Context(), record))
		next.ServeHTTP(w, r)
		if record.Decided() || !record.HasStatus() {
			return
		}
		a.applyPolicy(record, r)
		record.Emit(context.WithoutCancel(r.Context()), audit.ResponseStarted)
	})
}

// applyPolicy looks up the audit level of the request, and stores it and the description of
// the request in the record.
func (a *Auditor) applyPolicy(record *audit.Record, r *http.Request) audit.Settings {
	ctx := r.Context()
	info := request.Named(r, request.InfoFrom(ctx))
	user := request.UserFrom(ctx)
	settings := a.Policy.For(info, user)
	a.Observe(settings.Level)
	record.Decide(settings)
	record.Describe(r, info, user)
	return settings
}

// Filter returns the second filter. It comes after authentication, because the policy needs
// the user.
func (a *Auditor) Filter(next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		record := audit.From(ctx)
		if a.applyPolicy(record, r).Level == audit.None {
			next.ServeHTTP(w, r)
			return
		}
		if !record.Emit(ctx, audit.RequestReceived) {
			a.Rejected()
			http.Error(w, sanitizer.Replace(fmt.Sprintf("Internal Server Error: %q: failed to store audit event", r.RequestURI)),
				http.StatusInternalServerError)
			return
		}
		a.serve(responserecorder.Wrap(w), r, record, next)
	})
}

// sanitizer escapes text so that a response does not look like HTML.
var sanitizer = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// serve calls next and records its response.
func (a *Auditor) serve(w *responserecorder.Recorder, r *http.Request, record *audit.Record, next http.Handler) {
	// The event is written even if the client has gone away.
	ctx := context.WithoutCancel(r.Context())
	longRunning := deadline.LongRunning(request.InfoFrom(ctx))
	var answer *bodyCapture
	w.Started = func(status int) {
		record.SetStatusCode(status)
		if longRunning {
			record.Emit(ctx, audit.ResponseStarted)
		}
		// The body of a long-running request is a stream, not an object, unless it is an error.
		if record.Wants(audit.RequestResponse) && (!longRunning || status >= http.StatusBadRequest) && isObject(w.Header()) {
			answer = &bodyCapture{limit: maxCapture}
			if a.MaxObjectBytes > 0 {
				answer.limit = min(a.MaxObjectBytes, maxCapture)
			}
			w.Copy = answer
		}
	}
	if !longRunning {
		w.Wrote = func(took time.Duration) { audit.AddLatency(ctx, audit.ResponseWrite, took) }
	}
	defer func() {
		w.Started, w.Copy, w.Wrote = nil, nil, nil
		if cause := recover(); cause != nil {
			audit.SetResponseStatus(ctx, &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
				Message: fmt.Sprintf("APIServer panic'd: %v", cause),
			})
			record.Emit(ctx, audit.Panic)
			panic(cause)
		}
		if !record.HasStatus() {
			audit.SetResponseStatus(ctx,
				&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK, Message: "Connection closed early"})
			if longRunning {
				record.Emit(ctx, audit.ResponseStarted)
			}
		}
		if answer != nil && !answer.exceeded {
			header := w.Header()
			record.SetResponseObject(func() ([]byte, error) { return a.objectJSON(header, answer.body.Bytes()) })
		}
		record.Emit(ctx, audit.ResponseComplete)
	}()
	next.ServeHTTP(w, r)
}

// maxCapture is the largest response that is recorded, in bytes, whatever the configuration allows. A response may
// come from another server and have no end.
const maxCapture = 32 << 20

// bodyCapture keeps a copy of a response body. It keeps nothing of a body above its limit.
type bodyCapture struct {
	body     bytes.Buffer
	limit    int64 // in bytes
	exceeded bool
}

// Write implements io.Writer.
func (c *bodyCapture) Write(b []byte) (int, error) {
	if c.exceeded = c.exceeded || int64(c.body.Len()+len(b)) > c.limit; c.exceeded {
		c.body = bytes.Buffer{}
		return len(b), nil
	}
	return c.body.Write(b)
}
