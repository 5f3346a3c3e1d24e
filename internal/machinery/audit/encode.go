package audit

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
)

// eventTypeMeta is the beginning of an event that is not in a list.
const eventTypeMeta = `"kind":"Event","apiVersion":"audit.k8s.io/v1",`

// microFormat is metav1.RFC3339Micro in quotes.
const microFormat = `"` + metav1.RFC3339Micro + `"`

// AppendEvent appends the JSON of an event that is not in a list. The result equals that of
// encoding/json, but is made without reflection.
func AppendEvent(b []byte, e *Event) []byte { return appendEvent(append(b, '{'), e, eventTypeMeta) }

// AppendItem appends the JSON of an event in a list. Such an event has no fields kind and apiVersion.
func AppendItem(b []byte, e *Event) []byte { return appendEvent(append(b, '{'), e, "") }

func appendEvent(b []byte, e *Event, head string) []byte {
	b = append(b, head...)
	b = appendMember(b, `"level":`, string(e.Level))
	b = appendMember(b, `,"auditID":`, string(e.AuditID))
	b = appendMember(b, `,"stage":`, string(e.Stage))
	b = appendMember(b, `,"requestURI":`, e.RequestURI)
	b = appendMember(b, `,"verb":`, e.Verb)
	b = appendUser(append(b, `,"user":`...), &e.User)
	if e.ImpersonatedUser != nil {
		b = appendUser(append(b, `,"impersonatedUser":`...), e.ImpersonatedUser)
	}
	if m := e.AuthenticationMetadata; m != nil {
		b = append(b, `,"authenticationMetadata":{`...)
		if m.ImpersonationConstraint != "" {
			b = appendMember(b, `"impersonationConstraint":`, m.ImpersonationConstraint)
		}
		b = append(b, '}')
	}
	if len(e.SourceIPs) > 0 {
		b = appendStrings(append(b, `,"sourceIPs":`...), e.SourceIPs)
	}
	if e.UserAgent != "" {
		b = appendMember(b, `,"userAgent":`, e.UserAgent)
	}
	if e.ObjectRef != nil {
		b = appendReference(append(b, `,"objectRef":`...), e.ObjectRef)
	}
	if e.ResponseStatus != nil {
		b = appendStatus(append(b, `,"responseStatus":`...), e.ResponseStatus)
	}
	if e.RequestObject != nil {
		b = append(append(b, `,"requestObject":`...), e.RequestObject.Raw...)
	}
	if e.ResponseObject != nil {
		b = append(append(b, `,"responseObject":`...), e.ResponseObject.Raw...)
	}
	b = appendTime(append(b, `,"requestReceivedTimestamp":`...), e.RequestReceivedTimestamp)
	b = appendTime(append(b, `,"stageTimestamp":`...), e.StageTimestamp)
	if len(e.Annotations) > 0 {
		b = append(b, `,"annotations":`...)
		b = appendMap(b, e.Annotations, appendString)
	}
	return append(b, '}')
}

func appendMember(b []byte, name, value string) []byte {
	return appendString(append(b, name...), value)
}

// appendName appends the name of the next member of an object, after a comma if it is not the first member.
func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(b, name...)
}

// appendOptional appends a member of an object unless the value is empty.
func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendString(appendName(b, name), value)
}

func appendUser(b []byte, u *authenticationv1.UserInfo) []byte {
	b = appendOptional(append(b, '{'), `"username":`, u.Username)
	b = appendOptional(b, `"uid":`, u.UID)
	if len(u.Groups) > 0 {
		b = appendStrings(appendName(b, `"groups":`), u.Groups)
	}
	if len(u.Extra) > 0 {
		b = appendMap(appendName(b, `"extra":`), u.Extra, func(b []byte, v authenticationv1.ExtraValue) []byte {
			if v == nil {
				return append(b, "null"...)
			}
			return appendStrings(b, v)
		})
	}
	return append(b, '}')
}

func appendReference(b []byte, r *auditv1.ObjectReference) []byte {
	b = appendOptional(append(b, '{'), `"resource":`, r.Resource)
	b = appendOptional(b, `"namespace":`, r.Namespace)
	b = appendOptional(b, `"name":`, r.Name)
	b = appendOptional(b, `"uid":`, string(r.UID))
	b = appendOptional(b, `"apiGroup":`, r.APIGroup)
	b = appendOptional(b, `"apiVersion":`, r.APIVersion)
	b = appendOptional(b, `"resourceVersion":`, r.ResourceVersion)
	b = appendOptional(b, `"subresource":`, r.Subresource)
	return append(b, '}')
}

// appendStatus appends a Status as events contain it: without kind, and with empty list metadata.
func appendStatus(b []byte, s *metav1.Status) []byte {
	b = append(b, `{"metadata":{}`...)
	b = appendOptional(b, `"status":`, s.Status)
	b = appendOptional(b, `"message":`, s.Message)
	b = appendOptional(b, `"reason":`, string(s.Reason))
	if s.Details != nil {
		if details, err := json.Marshal(s.Details); err == nil {
			b = append(append(b, `,"details":`...), details...)
		}
	}
	if s.Code != 0 {
		b = strconv.AppendInt(append(b, `,"code":`...), int64(s.Code), 10)
	}
	return append(b, '}')
}

func appendTime(b []byte, t metav1.MicroTime) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return t.UTC().AppendFormat(b, microFormat)
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

// appendMap appends a map with sorted keys.
func appendMap[V any](b []byte, m map[string]V, appendValue func([]byte, V) []byte) []byte {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, key)
		b = appendValue(append(b, ':'), m[key])
	}
	return append(b, '}')
}

// appendString appends a JSON string like encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) // encoding a string cannot fail
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Line returns an event as one line of text, in the log format "legacy".
func Line(e *Event) string {
	quoted := func(list []string) string {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = strconv.Quote(s)
		}
		return strings.Join(out, ",")
	}
	user, groups := "<none>", "<none>"
	if e.User.Username != "" {
		user = e.User.Username
		if len(e.User.Groups) > 0 {
			groups = quoted(e.User.Groups)
		}
	}
	as, asGroups := "<self>", "<lookup>"
	if e.ImpersonatedUser != nil {
		as = e.ImpersonatedUser.Username
		if e.ImpersonatedUser.Groups != nil {
			asGroups = quoted(e.ImpersonatedUser.Groups)
		}
	}
	namespace := "<none>"
	if e.ObjectRef != nil && e.ObjectRef.Namespace != "" {
		namespace = e.ObjectRef.Namespace
	}
	response := "<deferred>"
	if e.ResponseStatus != nil {
		response = strconv.Itoa(int(e.ResponseStatus.Code))
	}
	ip := "<unknown>"
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	var b strings.Builder
	b.WriteString(e.RequestReceivedTimestamp.Format(time.RFC3339Nano))
	b.WriteString(" AUDIT:")
	for _, p := range [][2]string{
		{"id", string(e.AuditID)}, {"stage", string(e.Stage)}, {"ip", ip}, {"method", e.Verb}, {"user", user},
		{"groups", groups},
		{"as", as}, {"asgroups", asGroups}, {"user-agent", e.UserAgent}, {"namespace", namespace}, {"uri", e.RequestURI},
	} {
		b.WriteString(" " + p[0] + "=" + strconv.Quote(p[1]))
	}
	b.WriteString(` response="` + response + `"`)
	return b.String()
}

// dropManagedFields removes the managedFields of an object, of the items of a list, or of the
// objects in the rows of a table.
func dropManagedFields(doc []byte) []byte {
	doc = dropFromObject(doc)
	doc = eachElement(doc, "items", dropFromObject)
	return eachElement(doc, "rows", func(row []byte) []byte {
		object, start, end, found, err := wire.Member(row, "object")
		if err != nil || !found {
			return row
		}
		return splice(row, start, end, dropFromObject(object))
	})
}

// dropFromObject removes the managedFields of one object.
func dropFromObject(object []byte) []byte {
	meta, start, end, found, err := wire.Member(object, "metadata")
	if err != nil || !found {
		return object
	}
	_, from, to, found, err := wire.Member(meta, "managedFields")
	if err != nil || !found {
		return object
	}
	// The document is compact JSON, so the member follows a brace or a comma.
	from -= len(`"managedFields":`)
	if meta[from-1] == ',' {
		from--
	} else if meta[to] == ',' {
		to++
	}
	return splice(object, start, end, splice(meta, from, to, nil))
}

// eachElement returns the document with f applied to each element of the named array.
func eachElement(doc []byte, name string, f func([]byte) []byte) []byte {
	list, start, end, found, err := wire.Member(doc, name)
	if err != nil || !found {
		return doc
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(list, &elements); err != nil {
		return doc
	}
	out := append(make([]byte, 0, len(list)), '[')
	for i, element := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, f(element)...)
	}
	return splice(doc, start, end, append(out, ']'))
}

// splice returns b with the bytes from start to end replaced.
func splice(b []byte, start, end int, with []byte) []byte {
	out := make([]byte, 0, len(b)-(end-start)+len(with))
	out = append(out, b[:start]...)
	out = append(out, with...)
	return append(out, b[end:]...)
}
