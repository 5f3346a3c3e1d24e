package audit

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSlowRequestsAreAnnotatedWithLatencies checks that the last event of a slow request has the time of each layer,
// added up if the layer ran several times. Events of fast requests have no such annotations.
func TestSlowRequestsAreAnnotatedWithLatencies(t *testing.T) {
	for received, want := range map[time.Time]string{time.Unix(1, 0): "3s", time.Now().Add(time.Hour): ""} {
		sink := &list{}
		r := NewRecord(sink, func() {}, "id", received)
		r.Decide(Settings{Level: Metadata})
		ctx := With(context.Background(), r)
		AddLatency(ctx, Authentication, time.Second)
		AddLatency(ctx, Authentication, 2*time.Second)
		r.Emit(ctx, ResponseStarted)
		r.Emit(ctx, ResponseComplete)
		first, last := sink.events[0].Annotations, sink.events[1].Annotations
		if len(first) != 0 || last["apiserver.latency.k8s.io/authentication"] != want {
			t.Errorf("%v: %v, %v", received, first, last)
		}
		if _, ok := last["apiserver.latency.k8s.io/authorization"]; ok ||
			(last["apiserver.latency.k8s.io/total"] != "") != (want != "") {
			t.Errorf("%v: %v", received, last)
		}
	}
	AddLatency(context.Background(), Authentication, time.Second) // a request without a Record
}

// TestRefusalIsAStatusObject checks that a refusal is recorded as a Status at the level RequestResponse, whether the
// response is captured or not.
func TestRefusalIsAStatusObject(t *testing.T) {
	for _, level := range []Level{Metadata, Request, RequestResponse} {
		r, sink := newTestRecord(Settings{Level: level})
		ctx := With(context.Background(), r)
		SetErrorStatus(ctx, &metav1.Status{Status: "Failure", Message: "no", Reason: "Unauthorized", Code: 401})
		r.Emit(ctx, ResponseStarted)
		e := sink.events[0]
		if e.ResponseStatus.Message != "no" || (e.ResponseObject != nil) != (level == RequestResponse) {
			t.Errorf("%v: %+v", level, e)
		}
		const want = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no",` +
			`"reason":"Unauthorized","code":401}`
		if level == RequestResponse && string(e.ResponseObject.Raw) != want {
			t.Errorf("%s", e.ResponseObject.Raw)
		}
	}
}
