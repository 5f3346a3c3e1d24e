package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	maxUserAgent       = 1024
	userAgentTruncated = "...TRUNCATED"
)

// Record collects the audit data of one request. It begins before the policy has decided
// whether the request is recorded; until then it collects everything. All methods may be
// called concurrently. All except Decide and Emit may be called on a nil Record, and do nothing.
type Record struct {
	sink  Sink
	count func() // called for each event

	mu       sync.Mutex // guards what follows
	decided  bool
	settings Settings
	event    Event
	refusal  *metav1.Status // the Status of the error response; nil if there is none
	times    latencies
}

// NewRecord returns the record of a request with that audit ID, received at the given time.
// count is called for each event.
func NewRecord(sink Sink, count func(), id string, received time.Time) *Record {
	r := &Record{sink: sink, count: count}
	r.event.AuditID = types.UID(id)
	r.event.RequestReceivedTimestamp = metav1.NewMicroTime(received)
	return r
}

type contextKey struct{}

// With returns a context with the request's record.
func With(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// From returns the request's record, nil if the request is not audited.
func From(ctx context.Context) *Record {
	r, _ := ctx.Value(contextKey{}).(*Record)
	return r
}

// Annotate adds an annotation to the events of the request. The key names the part of the
// server that decided something, such as authorization.k8s.io/decision; values are short. If a
// key is set again, the first value stays. Annotations are recorded from level Metadata on.
func Annotate(ctx context.Context, key, value string) { From(ctx).Annotate(key, value) }

// AnnotateRequest adds an annotation if the level is Request or higher.
func AnnotateRequest(ctx context.Context, key, value string) { From(ctx).annotate(Request, key, value) }

// Annotate is like the function Annotate.
func (r *Record) Annotate(key, value string) { r.annotate(Metadata, key, value) }

func (r *Record) annotate(level Level, key, value string) {
	r.update(level, func(e *Event) {
		if e.Annotations == nil {
			e.Annotations = map[string]string{}
		}
		if _, ok := e.Annotations[key]; !ok {
			e.Annotations[key] = value
		}
	})
}

// Annotation returns the value of an annotation.
func (r *Record) Annotation(key string) (value string, ok bool) {
	if r == nil {
		return "", false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	value, ok = r.event.Annotations[key]
	return value, ok
}

// Impersonate records that the request is handled as another user. constraint is the verb of
// the constrained impersonation that allowed it, or "".
func Impersonate(ctx context.Context, user *request.User, constraint string) {
	From(ctx).update(Metadata, func(e *Event) {
		info := user.UserInfo()
		e.ImpersonatedUser = &info
		if constraint != "" {
			e.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
		}
	})
}

// SetResponseStatus records the Status of the response, from level Metadata on.
func SetResponseStatus(ctx context.Context, s *metav1.Status) {
	From(ctx).update(Metadata, func(e *Event) {
		e.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details,
			Code: s.Code}
	})
}

// SetErrorStatus records the Status of an error response, and records it as the response
// object at level RequestResponse.
func SetErrorStatus(ctx context.Context, s *metav1.Status) {
	SetResponseStatus(ctx, s)
	if r := From(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refusal = s
	}
}

// refusedObject returns the Status of an error response as an object, nil if there is none.
func refusedObject(s *metav1.Status) *runtime.Unknown {
	if s == nil {
		return nil
	}
	object := *s
	object.Kind, object.APIVersion = "Status", "v1"
	doc, err := json.Marshal(&object)
	if err != nil {
		return nil // encoding a Status does not fail
	}
	return &runtime.Unknown{Raw: doc}
}

// is calls f with r.mu held and returns its result. For a nil Record it returns false.
func (r *Record) is(f func() bool) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return f()
}

// update calls f with the event if the level is at least the given one.
func (r *Record) update(least Level, f func(*Event)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.decided || r.settings.Level >= least {
		f(&r.event)
	}
}

// Decide sets the settings of the policy. It is called once, when the user is known.
func (r *Record) Decide(s Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decided, r.settings = true, s
	r.event.Level = levels[s.Level]
}

// Decided reports whether Decide has been called.
func (r *Record) Decided() bool {
	return r.is(func() bool { return r.decided })
}

// Wants reports whether the level is at least l. Data that is expensive to make is only made
// if it is wanted.
func (r *Record) Wants(l Level) bool {
	return r.is(func() bool { return r.decided && r.settings.Level >= l })
}

// OmitsManagedFields reports whether objects are recorded without managedFields.
func (r *Record) OmitsManagedFields() bool {
	return r.is(func() bool { return r.settings.OmitManagedFields })
}

// Describe records the request. user may be nil.
func (r *Record) Describe(req *http.Request, i *request.Info, user *request.User) {
	var ips []string
	for _, ip := range utilnet.SourceIPs(req) {
		ips = append(ips, ip.String())
	}
	r.update(Metadata, func(e *Event) {
		e.Verb = i.Verb
		e.RequestURI = request.RedactedURI(req.URL)
		e.UserAgent = req.UserAgent()
		if len(e.UserAgent) > maxUserAgent {
			e.UserAgent = e.UserAgent[:maxUserAgent] + userAgentTruncated
		}
		e.SourceIPs = ips
		if user != nil {
			e.User = user.UserInfo()
		}
		if i.IsResource() {
			e.ObjectRef = &auditv1.ObjectReference{
				Namespace: i.Namespace, Name: i.Name, Resource: i.Resource, Subresource: i.Subresource,
				APIGroup: i.Group, APIVersion: i.Version,
			}
		}
	})
}

// SetRequestObject records the object in a request: its name and UID at level Metadata, the
// whole object at level Request; encode returns its JSON. meta is nil for a body that has no
// metadata, such as DeleteOptions.
func (r *Record) SetRequestObject(meta metav1.Object, encode func() ([]byte, error)) {
	if !r.Wants(Metadata) {
		return
	}
	var object *runtime.Unknown
	if r.Wants(Request) {
		object = r.document(encode)
	}
	r.update(Metadata, func(e *Event) {
		if meta != nil && e.ObjectRef != nil {
			e.ObjectRef = completeReference(*e.ObjectRef, meta)
		}
		e.RequestObject = object
	})
}

// completeReference returns ref with those of the fields namespace, name, UID and resourceVersion that the path of
// the request does not have. They are taken from the object.
func completeReference(ref auditv1.ObjectReference, meta metav1.Object) *auditv1.ObjectReference {
	ref.Namespace, ref.Name = cmp.Or(ref.Namespace, meta.GetNamespace()), cmp.Or(ref.Name, meta.GetName())
	ref.UID = cmp.Or(ref.UID, meta.GetUID())
	ref.ResourceVersion = cmp.Or(ref.ResourceVersion, meta.GetResourceVersion())
	return &ref
}

// SetRequestPatch records the body of a patch as JSON.
func (r *Record) SetRequestPatch(encode func() ([]byte, error)) {
	if !r.Wants(Request) {
		return
	}
	object := &runtime.Unknown{}
	if object.Raw = document(encode); object.Raw == nil {
		return
	}
	r.update(Request, func(e *Event) { e.RequestObject = object })
}

// SetResponseObject records the object in the response.
func (r *Record) SetResponseObject(encode func() ([]byte, error)) {
	if !r.Wants(RequestResponse) {
		return
	}
	object := r.document(encode)
	r.update(RequestResponse, func(e *Event) { e.ResponseObject = object })
}

// document returns the result of encode as a part of an event, nil if it is not valid JSON.
func (r *Record) document(encode func() ([]byte, error)) *runtime.Unknown {
	doc := document(encode)
	if doc == nil {
		return nil
	}
	if r.OmitsManagedFields() {
		doc = dropManagedFields(doc)
	}
	return &runtime.Unknown{Raw: doc}
}

// document returns compact JSON with HTML characters escaped.
func document(encode func() ([]byte, error)) []byte {
	raw, err := encode()
	if err != nil {
		return nil // the request itself fails with the same error
	}
	doc, err := json.Marshal(json.RawMessage(raw))
	if err != nil {
		return nil
	}
	return doc
}

// SetStatusCode records the HTTP status of the response.
func (r *Record) SetStatusCode(code int) {
	r.update(Metadata, func(e *Event) {
		s := metav1.Status{}
		if e.ResponseStatus != nil {
			s = *e.ResponseStatus
		}
		s.Code = int32(code)
		e.ResponseStatus = &s
	})
}

// HasStatus reports whether a status was recorded.
func (r *Record) HasStatus() bool {
	return r.is(func() bool { return r.event.ResponseStatus != nil })
}

// Emit writes the event of a stage to the sink, unless the policy omits that stage. It returns
// false if the request has to fail because the event could not be written.
func (r *Record) Emit(ctx context.Context, stage Stages) bool {
	r.mu.Lock()
	if !r.decided || r.settings.Level == None || r.settings.Omit&stage != 0 {
		r.mu.Unlock()
		return true
	}
	event := r.event
	event.Annotations = maps.Clone(event.Annotations)
	if event.ResponseObject == nil && r.settings.Level == RequestResponse {
		event.ResponseObject = refusedObject(r.refusal)
	}
	if stage == ResponseComplete {
		event.Annotations = r.times.annotate(event.Annotations, time.Since(event.RequestReceivedTimestamp.Time))
	}
	r.mu.Unlock()

	event.Stage = stages[stage]
	event.StageTimestamp = event.RequestReceivedTimestamp
	if stage != RequestReceived {
		event.StageTimestamp = metav1.NewMicroTime(time.Now())
	}
	r.count()
	return r.sink.Write(ctx, []*Event{&event})
}
