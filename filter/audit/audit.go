// Package audit notes requests for the auditor, as the policy wants it.
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

	"github.com/keelson-dev/keelson/audit"
	"github.com/keelson-dev/keelson/audit/policy"
	"github.com/keelson-dev/keelson/filter/auditid"
	"github.com/keelson-dev/keelson/filter/deadline"
	"github.com/keelson-dev/keelson/filter/responserecorder"
	"github.com/keelson-dev/keelson/request"
)

// Auditor has the two filters of auditing. A nil Auditor has filters that do
// nothing and cost nothing.
type Auditor struct {
	Policy *policy.Policy
	Sink   audit.Sink
	// New returns an empty object of a kind, nil for one that is not known:
	// protobuf is noted as JSON.
	New func(schema.GroupVersionKind) runtime.Object
	// Observe is told the level of each request, Count each event, Rejected each
	// request that was refused because its event could not be stored.
	Observe         func(audit.Level)
	Count, Rejected func()
	// MaxObject bounds the objects of answers that are noted, in bytes; 0 does not.
	MaxObject int64
}

// Begin returns the filter that comes as early as possible: what the filters
// before the policy decide is noted too. A request that they refuse has one event.
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
		a.decide(record, r)
		record.Emit(context.WithoutCancel(r.Context()), audit.ResponseStarted)
	})
}

// decide asks the policy, and describes the request if it is noted.
func (a *Auditor) decide(record *audit.Record, r *http.Request) audit.Settings {
	ctx := r.Context()
	info := request.Named(r, request.InfoFrom(ctx))
	user := request.UserFrom(ctx)
	settings := a.Policy.For(info, user)
	a.Observe(settings.Level)
	record.Decide(settings)
	record.Describe(r, info, user)
	return settings
}

// Filter returns the filter that comes when the user is known.
func (a *Auditor) Filter(next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		record := audit.From(ctx)
		if a.decide(record, r).Level == audit.None {
			next.ServeHTTP(w, r)
			return
		}
		if !record.Emit(ctx, audit.RequestReceived) {
			a.Rejected()
			http.Error(w, sanitizer.Replace(fmt.Sprintf("Internal Server Error: %q: failed to store audit event", r.RequestURI)), http.StatusInternalServerError)
			return
		}
		a.serve(responserecorder.Wrap(w), r, record, next)
	})
}

// sanitizer keeps answers from looking like HTML.
var sanitizer = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// serve notes how a request is answered.
func (a *Auditor) serve(w *responserecorder.Recorder, r *http.Request, record *audit.Record, next http.Handler) {
	ctx := context.WithoutCancel(r.Context()) // the event is worth having even if the client is gone
	longRunning := deadline.LongRunning(request.InfoFrom(ctx))
	var answer *capture
	w.Started = func(status int) {
		record.Status(status)
		if longRunning {
			record.Emit(ctx, audit.ResponseStarted)
		}
		// A stream is no object, unless it is an error.
		if record.Wants(audit.RequestResponse) && (!longRunning || status >= http.StatusBadRequest) && isObject(w.Header()) {
			answer = &capture{most: a.MaxObject}
			w.Copy = answer
		}
	}
	if !longRunning {
		w.Wrote = func(took time.Duration) { audit.Spent(ctx, audit.ResponseWrite, took) }
	}
	defer func() {
		w.Started, w.Copy, w.Wrote = nil, nil, nil
		if cause := recover(); cause != nil {
			audit.Respond(ctx, &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
				Message: fmt.Sprintf("APIServer panic'd: %v", cause),
			})
			record.Emit(ctx, audit.Panic)
			panic(cause)
		}
		if !record.HasStatus() {
			audit.Respond(ctx, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK, Message: "Connection closed early"})
			if longRunning {
				record.Emit(ctx, audit.ResponseStarted)
			}
		}
		if answer != nil && !answer.over {
			header := w.Header()
			record.Answered(func() ([]byte, error) { return a.objectJSON(header, answer.body.Bytes()) })
		}
		record.Emit(ctx, audit.ResponseComplete)
	}()
	next.ServeHTTP(w, r)
}

// capture keeps what is written, unless it is too much.
type capture struct {
	body bytes.Buffer
	most int64 // 0 is no limit
	over bool
}

// Write implements io.Writer.
func (c *capture) Write(b []byte) (int, error) {
	if c.over = c.over || c.most > 0 && int64(c.body.Len()+len(b)) > c.most; c.over {
		c.body = bytes.Buffer{}
		return len(b), nil
	}
	return c.body.Write(b)
}
