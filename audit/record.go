package audit

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/request"
)

// maxUserAgent bounds what is noted of a user agent.
const (
	maxUserAgent       = 1024
	userAgentTruncated = "...TRUNCATED"
)

// Record is the note about one request. It begins before it is known whether the
// policy wants the request noted at all; until then everything is kept. All
// methods may be called on a nil Record, which notes nothing, and concurrently.
type Record struct {
	sink  Sink
	count func() // counts events

	mu       sync.Mutex // guards what follows
	decided  bool
	settings Settings
	event    Event
	refusal  *metav1.Status // what the request was refused with, nil if it was not
	times    latencies
}

// NewRecord begins the note of the request with that Audit-Id, which was received
// at the given time. count is called for each event.
func NewRecord(sink Sink, count func(), id string, received time.Time) *Record {
	r := &Record{sink: sink, count: count}
	r.event.AuditID = types.UID(id)
	r.event.RequestReceivedTimestamp = metav1.NewMicroTime(received)
	return r
}

type contextKey struct{}

// With returns ctx with the request's record.
func With(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// From returns the request's record, nil where the request is not noted.
func From(ctx context.Context) *Record {
	r, _ := ctx.Value(contextKey{}).(*Record)
	return r
}

// Annotate notes something that a part of the server decided about the request.
// The key names that part, such as authorization.k8s.io/decision; values are
// short. The first value of a key stays. Annotations are of the level Metadata.
func Annotate(ctx context.Context, key, value string) { From(ctx).Annotate(key, value) }

// Annotate is the function of that name.
func (r *Record) Annotate(key, value string) {
	r.update(Metadata, func(e *Event) {
		if e.Annotations == nil {
			e.Annotations = map[string]string{}
		}
		if _, ok := e.Annotations[key]; !ok {
			e.Annotations[key] = value
		}
	})
}

// Annotation returns the value that was noted under key.
func (r *Record) Annotation(key string) (value string, ok bool) {
	if r == nil {
		return "", false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	value, ok = r.event.Annotations[key]
	return value, ok
}

// Impersonate notes that the rest of the request is done as another user.
// constraint is the verb of the constrained impersonation that allowed it, "" for
// none.
func Impersonate(ctx context.Context, user *request.User, constraint string) {
	From(ctx).update(Metadata, func(e *Event) {
		info := userInfo(user)
		e.ImpersonatedUser = &info
		if constraint != "" {
			e.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
		}
	})
}

// Respond notes the Status that answers the request: its words are of the level
// Metadata.
func SetResponseStatus(ctx context.Context, s *metav1.Status) {
	From(ctx).update(Metadata, func(e *Event) {
		e.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
	})
}

// Refuse notes the Status that answers the request in the place of what it asked for:
// its words, and at the level RequestResponse the object.
func SetErrorStatus(ctx context.Context, s *metav1.Status) {
	SetResponseStatus(ctx, s)
	if r := From(ctx); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refusal = s
	}
}

// refused returns the object of a refusal, nil where there is none.
func refusedObject(s *metav1.Status) *runtime.Unknown {
	if s == nil {
		return nil
	}
	object := *s
	object.Kind, object.APIVersion = "Status", "v1"
	doc, err := json.Marshal(&object)
	if err != nil {
		return nil // there is no such Status
	}
	return &runtime.Unknown{Raw: doc}
}

// note lets f write to the event if the level reaches least.
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

// Decide says what the policy wants. It is called once, when the user is known.
func (r *Record) Decide(s Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decided, r.settings = true, s
	r.event.Level = levels[s.Level]
}

// Decided says whether Decide was called.
func (r *Record) Decided() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decided
}

// Wants says whether what is of that level is noted. What is costly to make is
// made only if it is wanted.
func (r *Record) Wants(l Level) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decided && r.settings.Level >= l
}

// OmitsManagedFields says whether objects are noted without managedFields.
func (r *Record) OmitsManagedFields() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings.OmitManagedFields
}

// Describe notes who asks for what; user may be nil.
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
			e.User = userInfo(user)
		}
		if i.IsResource() {
			e.ObjectRef = &auditv1.ObjectReference{
				Namespace: i.Namespace, Name: i.Name, Resource: i.Resource, Subresource: i.Subresource,
				APIGroup: i.Group, APIVersion: i.Version,
			}
		}
	})
}

func userInfo(u *request.User) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[key] = values
	}
	return out
}

// Sent notes the object that a request carries: at the level Metadata what it is,
// at Request the object, whose document encode makes. meta is nil for what is no
// object, such as DeleteOptions.
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

// completed adds to a reference what the path does not say.
func completeReference(ref auditv1.ObjectReference, meta metav1.Object) *auditv1.ObjectReference {
	if ref.Namespace == "" {
		ref.Namespace = meta.GetNamespace()
	}
	if ref.Name == "" {
		ref.Name = meta.GetName()
	}
	if ref.UID == "" {
		ref.UID = meta.GetUID()
	}
	if ref.ResourceVersion == "" {
		ref.ResourceVersion = meta.GetResourceVersion()
	}
	return &ref
}

// SentPatch notes a patch: the body, as JSON.
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

// Answered notes the object that answers the request.
func (r *Record) SetResponseObject(encode func() ([]byte, error)) {
	if !r.Wants(RequestResponse) {
		return
	}
	object := r.document(encode)
	r.update(RequestResponse, func(e *Event) { e.ResponseObject = object })
}

// document returns what encode makes as part of an event, nil where that is no
// JSON document.
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

// document returns compact JSON, with what matters to HTML escaped.
func document(encode func() ([]byte, error)) []byte {
	raw, err := encode()
	if err != nil {
		return nil // the request itself fails by the same error
	}
	doc, err := json.Marshal(json.RawMessage(raw))
	if err != nil {
		return nil
	}
	return doc
}

// Status notes the code of the answer.
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

// HasStatus says whether an answer was noted.
func (r *Record) HasStatus() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.event.ResponseStatus != nil
}

// Emit hands the event of a stage to the sink, unless the policy omits it, and
// says whether the request may go on as far as auditing is concerned.
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
