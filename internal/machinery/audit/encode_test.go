package audit

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// words are the texts in random events, with characters that are escaped in JSON and in HTML.
var words = []string{"", "a", "pods", `"quoted"`, "<script>&", "ünïcode", "line\nfeed\t", "\u2028", "\xff\xfe",
	`back\slash`, "system:masters", "/api/v1/pods?watch=1&x=%20"}

func randomEvent(r *rand.Rand) *Event {
	word := func() string { return words[r.IntN(len(words))] }
	some := func(n int) []string {
		var out []string
		for range r.IntN(n) {
			out = append(out, word())
		}
		return out
	}
	user := func() authenticationv1.UserInfo {
		u := authenticationv1.UserInfo{Username: word(), UID: word(), Groups: some(3)}
		for range r.IntN(3) {
			if u.Extra == nil {
				u.Extra = map[string]authenticationv1.ExtraValue{}
			}
			u.Extra[word()] = some(3)
		}
		return u
	}
	e := &Event{
		Level: auditv1.LevelRequest, AuditID: types.UID(word()), Stage: auditv1.StagePanic, RequestURI: word(), Verb: word(),
		User: user(), SourceIPs: some(3), UserAgent: word(),
		StageTimestamp: metav1.NewMicroTime(time.Unix(r.Int64N(1e9), r.Int64N(1e9))),
	}
	if r.IntN(2) == 0 {
		e.RequestReceivedTimestamp = metav1.NewMicroTime(time.Unix(1, 2000).In(time.FixedZone("x", 3600)))
		u := user()
		e.ImpersonatedUser = &u
		e.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: word()}
	}
	if r.IntN(2) == 0 {
		e.ObjectRef = &auditv1.ObjectReference{
			Resource: word(), Namespace: word(), Name: word(), UID: types.UID(word()), APIGroup: word(), APIVersion: word(),
			ResourceVersion: word(), Subresource: word(),
		}
		e.RequestObject = &runtime.Unknown{Raw: []byte(`{"kind":"Pod","n":1.50}`)}
	}
	if r.IntN(2) == 0 {
		e.ResponseStatus = &metav1.Status{Status: word(), Message: word(), Reason: metav1.StatusReason(word()),
			Code: r.Int32N(3) * 200}
		if r.IntN(2) == 0 {
			e.ResponseStatus.Details = &metav1.StatusDetails{Name: word(), Causes: []metav1.StatusCause{{Message: word()}}}
		}
		e.ResponseObject = &runtime.Unknown{Raw: []byte(`{"a":["\u003c"]}`)}
	}
	for range r.IntN(4) {
		if e.Annotations == nil {
			e.Annotations = map[string]string{}
		}
		e.Annotations[word()] = word()
	}
	return e
}

// TestEncodingEqualsThatOfTheType compares the encoder with encoding/json.
func TestEncodingEqualsThatOfTheType(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		e := randomEvent(r)
		item, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendItem(nil, e); !bytes.Equal(got, item) {
			t.Fatalf("item\n got %s\nwant %s", got, item)
		}
		alone := *e
		alone.Kind, alone.APIVersion = "Event", "audit.k8s.io/v1"
		document, err := json.Marshal(&alone)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendEvent(nil, e); !bytes.Equal(got, document) {
			t.Fatalf("event\n got %s\nwant %s", got, document)
		}
	}
}

func TestLine(t *testing.T) {
	e := &Event{
		AuditID: "id", Stage: auditv1.StageResponseComplete, SourceIPs: []string{"1.2.3.4", "5.6.7.8"}, Verb: "get",
		User: authenticationv1.UserInfo{Username: "joe", Groups: []string{"a", "b"}}, UserAgent: "kubectl",
		RequestURI: "/api/v1/namespaces/n/pods",
		ObjectRef:  &auditv1.ObjectReference{Namespace: "n"}, ResponseStatus: &metav1.Status{Code: 200},
		RequestReceivedTimestamp: metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)),
	}
	want := `2026-01-02T03:04:05.000006Z AUDIT: id="id" stage="ResponseComplete" ip="1.2.3.4" method="get" ` +
		`user="joe" groups="\"a\",\"b\"" as="<self>" asgroups="<lookup>" user-agent="kubectl" namespace="n" ` +
		`uri="/api/v1/namespaces/n/pods" response="200"`
	if got := Line(e); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `2026-01-02T03:04:05.000006Z AUDIT: id="" stage="" ip="<unknown>" method="" user="<none>" ` +
		`groups="<none>" as="bob" asgroups="<lookup>" user-agent="" namespace="<none>" uri="" response="<deferred>"`
	if got := Line(
		&Event{RequestReceivedTimestamp: e.RequestReceivedTimestamp,
			ImpersonatedUser: &authenticationv1.UserInfo{Username: "bob"}}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestManagedFieldsAreDropped(t *testing.T) {
	for doc, want := range map[string]string{
		`{"kind":"Pod","metadata":{"name":"a","managedFields":[{"manager":"x"}]},` +
			`"spec":{}}`: `{"kind":"Pod","metadata":{"name":"a"},"spec":{}}`,
		`{"metadata":{"managedFields":[],` +
			`"name":"a"}}`: `{"metadata":{"name":"a"}}`,
		`{"metadata":{"managedFields":[]}}`: `{"metadata":{}}`,
		`{"kind":"PodList","items":[{"metadata":{"managedFields":[1]}},` +
			`{"metadata":{"name":"b"}}]}`: `{"kind":"PodList","items":[{"metadata":{}},{"metadata":{"name":"b"}}]}`,
		`{"kind":"Table","rows":[{"cells":[],"object":{"metadata":{"name":"a",` +
			`"managedFields":[]}}}]}`: `{"kind":"Table","rows":[{"cells":[],"object":{"metadata":{"name":"a"}}}]}`,
		`{"kind":"Status","metadata":{}}`:   `{"kind":"Status","metadata":{}}`,
		`{"data":{"managedFields":"kept"}}`: `{"data":{"managedFields":"kept"}}`,
	} {
		if got := string(dropManagedFields([]byte(doc))); got != want {
			t.Errorf("%s: got %s, want %s", doc, got, want)
		}
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	e := randomEvent(rand.New(rand.NewPCG(3, 4)))
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEvent(buf[:0], e)
	}
}
