package audit

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// list is a Sink that keeps events.
type list struct{ events []*Event }

func (l *list) Write(_ context.Context, events []*Event) bool {
	l.events = append(l.events, events...)
	return true
}
func (l *list) Close(context.Context) error { return nil }

func newTestRecord(s Settings) (*Record, *list) {
	l := &list{}
	r := NewRecord(l, func() {}, "id", time.Now().Add(time.Hour)) // in the future, so that the request is not slow
	r.Decide(s)
	return r, l
}

func TestRecordHasOnlyDataOfItsLevel(t *testing.T) {
	secret := func() ([]byte, error) { return []byte(`{"data":{"k":"SECRET"}}`), nil }
	for _, level := range []Level{None, Metadata, Request, RequestResponse} {
		r, sink := newTestRecord(Settings{Level: level})
		ctx := With(context.Background(), r)
		req := httptest.NewRequest("POST", "/api/v1/namespaces/n/secrets", nil)
		r.Describe(req, request.ParseInfo(req), &request.User{Name: "joe"})
		r.SetRequestObject(&metav1.ObjectMeta{Name: "s", UID: "u"}, secret)
		r.SetResponseObject(secret)
		Annotate(ctx, "k", "v")
		SetResponseStatus(ctx, &metav1.Status{Message: "words", Code: 409})
		r.Emit(ctx, ResponseComplete)
		if level == None {
			if len(sink.events) != 0 {
				t.Errorf("None: %d events", len(sink.events))
			}
			continue
		}
		e := sink.events[0]
		if e.ObjectRef.Name != "s" || e.ObjectRef.UID != "u" || e.Annotations["k"] != "v" ||
			e.ResponseStatus.Message != "words" || e.User.Username != "joe" {
			t.Errorf("%s: %s", level, AppendEvent(nil, e))
		}
		if (e.RequestObject != nil) != (level >= Request) || (e.ResponseObject != nil) != (level >= RequestResponse) {
			t.Errorf("%s: objects %v %v", level, e.RequestObject, e.ResponseObject)
		}
		if level == Metadata && strings.Contains(string(AppendEvent(nil, e)), "SECRET") {
			t.Errorf("the event has what is above its level: %s", AppendEvent(nil, e))
		}
	}
}

func TestPatchesOfMetadataAreNotNoted(t *testing.T) {
	r, sink := newTestRecord(Settings{Level: Metadata})
	r.SetRequestPatch(func() ([]byte, error) { t.Error("made for nothing"); return nil, nil })
	r.Emit(context.Background(), ResponseComplete)
	if sink.events[0].RequestObject != nil {
		t.Error("noted")
	}
}

func TestStagesAreOmitted(t *testing.T) {
	r, sink := newTestRecord(Settings{Level: Metadata, Omit: RequestReceived | Panic})
	for _, s := range []Stages{RequestReceived, ResponseStarted, ResponseComplete, Panic} {
		if !r.Emit(context.Background(), s) {
			t.Error("refused")
		}
	}
	if len(sink.events) != 2 || sink.events[0].Stage != "ResponseStarted" || sink.events[1].Stage != "ResponseComplete" {
		t.Errorf("%v", sink.events)
	}
}

// TestEventsAreNotChangedLater checks that an event does not change after it was passed to a sink: sinks keep
// events.
func TestEventsAreNotChangedLater(t *testing.T) {
	r, sink := newTestRecord(Settings{Level: Metadata})
	r.Annotate("a", "1")
	r.SetStatusCode(200)
	r.Emit(context.Background(), ResponseStarted)
	r.Annotate("b", "2")
	r.Annotate("a", "another") // the first one stays
	r.SetStatusCode(500)
	r.Emit(context.Background(), ResponseComplete)
	first, last := sink.events[0], sink.events[1]
	if len(first.Annotations) != 1 || first.ResponseStatus.Code != 200 {
		t.Errorf("first: %s", AppendEvent(nil, first))
	}
	if len(last.Annotations) != 2 || last.Annotations["a"] != "1" || last.ResponseStatus.Code != 500 {
		t.Errorf("last: %s", AppendEvent(nil, last))
	}
}

func TestWithoutARecord(t *testing.T) {
	ctx := context.Background()
	Annotate(ctx, "k", "v")
	Impersonate(ctx, &request.User{Name: "u"}, "")
	SetResponseStatus(ctx, &metav1.Status{})
	From(ctx).SetRequestObject(nil, func() ([]byte, error) { t.Error("made for nothing"); return nil, nil })
	if From(ctx).Wants(Metadata) {
		t.Error("wanted")
	}
}

func TestInvalidJSONIsNotRecorded(t *testing.T) {
	for _, encode := range []func() ([]byte, error){
		func() ([]byte, error) { return []byte("{broken"), nil },
		func() ([]byte, error) { return nil, errors.New("no") },
	} {
		r, sink := newTestRecord(Settings{Level: RequestResponse})
		r.SetRequestPatch(encode)
		r.SetResponseObject(encode)
		r.Emit(context.Background(), ResponseComplete)
		if e := sink.events[0]; e.RequestObject != nil || e.ResponseObject != nil {
			t.Errorf("%s", AppendEvent(nil, e))
		}
	}
}

func TestLongUserAgentsAreCut(t *testing.T) {
	r, sink := newTestRecord(Settings{Level: Metadata})
	req := httptest.NewRequest("GET", "/x", nil)
	req.Header.Set("User-Agent", strings.Repeat("a", 2000))
	req.Header.Set("X-Forwarded-For", "10.1.1.1, bad, 10.1.1.2")
	req.Header.Set("X-Real-Ip", "10.1.1.3")
	r.Describe(req, request.ParseInfo(req), nil)
	r.Emit(context.Background(), ResponseComplete)
	e := sink.events[0]
	if len(e.UserAgent) != 1024+len("...TRUNCATED") || !strings.HasSuffix(e.UserAgent, "...TRUNCATED") {
		t.Errorf("%d", len(e.UserAgent))
	}
	if got := strings.Join(e.SourceIPs, " "); got != "10.1.1.1 10.1.1.2 10.1.1.3 192.0.2.1" {
		t.Errorf("%s", got)
	}
}
