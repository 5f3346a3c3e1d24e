package eventratelimit

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"

// clock is a time that the test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// sent returns the attributes of an event that a user writes about an object in a namespace.
func sent(user, namespace, object string) *admission.Attributes {
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}}
	e.Source = corev1.EventSource{Component: "c", Host: "h"}
	e.InvolvedObject = corev1.ObjectReference{
		Kind: "Pod", Namespace: namespace, Name: object, UID: "u", APIVersion: "v1",
	}
	a := admissiontest.Creation(corev1.Resource("events"), e)
	a.Requested.Kind = corev1.SchemeGroupVersion.WithKind("Event")
	if user != "" {
		a.User = &request.User{Name: user}
	}
	return a
}

func plugged(t *testing.T, c *clock, limits string) admission.Plugin {
	t.Helper()
	config, err := DecodeConfig([]byte(head + "limits: [" + limits + "]"))
	if err != nil {
		t.Fatal(err)
	}
	return Plugin(config, c.now)
}

func TestLimits(t *testing.T) {
	const tooMany = "Too many requests: limit reached on type "
	for limits, steps := range map[string][]struct {
		user, namespace, object string
		want                    string
	}{
		"{type: Server, qps: 1, burst: 2}": {
			{"a", "n", "x", ""}, {"b", "m", "y", ""}, {"c", "o", "z", tooMany + "Server for key "},
		},
		"{type: Namespace, qps: 1, burst: 1}": {
			{"a", "n", "x", ""}, {"a", "m", "x", ""}, {"b", "n", "y", tooMany + "Namespace for key n"},
		},
		"{type: User, qps: 1, burst: 1}": {
			{"a", "n", "x", ""}, {"b", "n", "x", ""}, {"", "n", "x", ""}, {"", "n", "x", tooMany + "User for key "},
			{"a", "m", "y", tooMany + "User for key a"},
		},
		"{type: SourceAndObject, qps: 1, burst: 1}": {
			{"a", "n", "x", ""}, {"a", "n", "y", ""}, {"b", "n", "x", tooMany + "SourceAndObject for key chPodnxuv1"},
		},
		"{type: User, qps: 1, burst: 1}, {type: Server, qps: 1, burst: 1}": {
			{"a", "n", "x", ""}, {"b", "n", "x", tooMany + "Server for key "},
			// The first limit has counted the event that the second one refused.
			{"b", "n", "x", "Too many requests: [limit reached on type User for key b, limit reached on type Server for key ]"},
		},
	} {
		c := &clock{time.Unix(1000, 0)}
		p := plugged(t, c, limits)
		for i, step := range steps {
			err := p.Validate(t.Context(), sent(step.user, step.namespace, step.object))
			if message(err) != step.want {
				t.Errorf("%s: event %d: %v, want %q", limits, i, err, step.want)
			}
			if err == nil {
				continue
			}
			status := apierr.Status(err)
			if status.Code != http.StatusTooManyRequests || status.Reason != metav1.StatusReasonTooManyRequests {
				t.Errorf("%s: event %d: %d %s", limits, i, status.Code, status.Reason)
			}
		}
		c.at = c.at.Add(time.Second)
		if err := p.Validate(t.Context(), sent("a", "n", "x")); err != nil {
			t.Errorf("%s: a second later: %v", limits, err)
		}
	}
}

func TestWhatIsNotCounted(t *testing.T) {
	c := &clock{time.Unix(1000, 0)}
	p := plugged(t, c, "{type: Server, qps: 1, burst: 1}")
	dry, deleted, newer := sent("a", "n", "x"), sent("a", "n", "x"), sent("a", "n", "x")
	dry.Options.DryRun = true
	deleted.Operation, deleted.Object = admission.Delete, nil
	newer.Requested.Kind = eventsv1.SchemeGroupVersion.WithKind("Event")
	for range 3 {
		for _, a := range []*admission.Attributes{dry, deleted, newer} {
			if err := p.Validate(t.Context(), a); err != nil {
				t.Errorf("%v: %v", a.Operation, err)
			}
		}
	}
	for i, want := range []string{"", "Too many requests: limit reached on type Server for key "} {
		a := sent("a", "n", "x")
		a.Operation, a.Old = admission.Update, a.Object
		if err := p.Validate(t.Context(), a); message(err) != want {
			t.Errorf("update %d: %v", i, err)
		}
	}
}

// TestBucketsAreBounded checks that no more than cacheSize buckets are kept, and that a bucket that was dropped is
// full again.
func TestBucketsAreBounded(t *testing.T) {
	l := newLimiter(Limit{Type: SourceAndObject, QPS: 1, Burst: 1, CacheSize: 3})
	now := time.Unix(1000, 0)
	for i := range 1000 {
		long := strings.Repeat("x", 10000) + fmt.Sprint(i)
		if err := l.count(sent("a", "n", long), now); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if n := l.buckets.Len(); n > 3 {
			t.Fatalf("%d buckets", n)
		}
	}
	if err := l.count(sent("a", "n", strings.Repeat("x", 10000)+"999"), now); err == nil {
		t.Error("the newest bucket is gone")
	}
}

// TestKeysAreNotConfused checks that keys with different parts have different buckets even if the joined texts are
// equal.
func TestKeysAreNotConfused(t *testing.T) {
	if hashOf([]string{"ab", "c"}) == hashOf([]string{"a", "bc"}) {
		t.Error("two keys have one bucket")
	}
}

func TestConcurrentEvents(t *testing.T) {
	p := plugged(t, &clock{time.Unix(1000, 0)}, "{type: Namespace, qps: 1, burst: 10}")
	var accepted atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if p.Validate(t.Context(), sent("a", "n", "x")) == nil {
					accepted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := accepted.Load(); n != 10 {
		t.Errorf("%d events were accepted, not 10", n)
	}
}

func TestBadConfigs(t *testing.T) {
	for text, want := range map[string]string{
		head:                "limits: Invalid value: null: must not be empty",
		head + "limits: []": "must not be empty",
		head + "limits: [{type: Sever, qps: 1, burst: 1}]": `limits[0].type: Unsupported value: "Sever": supported values: ` +
			`"Namespace", "Server", "SourceAndObject", "User"`,
		head + "limits: [{type: Server}]": "[limits[0].burst: Invalid value: 0: must be positive, " +
			"limits[0].qps: Invalid value: 0: must be positive]",
		head + "limits: [{type: User, qps: 1, burst: 1, cacheSize: -1}]":   "limits[0].cacheSize: Invalid value: -1: must not be negative",
		head + "limits: [{type: Server, qps: 1, burst: 1, cacheSize: -1}]": "",
		head + "limits: [{type: Server, qps: 1, burst: 1, size: 1}]":       `unknown field "limits[0].size"`,
		"apiVersion: v1\nkind: Configuration":                              "no kind",
	} {
		if _, err := DecodeConfig([]byte(text)); !strings.Contains(message(err), want) || (err == nil) != (want == "") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := DecodeConfig(nil); err == nil || !strings.Contains(err.Error(), "must not be empty") {
		t.Errorf("no configuration: %v", err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
