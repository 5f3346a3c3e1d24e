package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

var foos = schema.GroupVersionResource{Group: "evil.io", Version: "v1", Resource: "foos"}

// newClient returns a client of an extension API server, whose requests are answered by handler.
func newClient(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	a := &Aggregator{metrics: newMetrics(nil), o: Options{
		Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		Resolve: func(context.Context, string, string, int32) (string, error) {
			return server.Listener.Addr().String(), nil
		},
	}}
	r := newRemote(a, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.evil.io"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: foos.Group, Version: foos.Version, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "evil"},
		},
	})
	r.available.Store(true)
	t.Cleanup(r.transport.CloseIdle)
	a.table.Store(&table{remotes: map[schema.GroupVersion]*remote{foos.GroupVersion(): r}})
	return a.Client(&request.User{Name: "system:controller"})
}

// listed lists all objects, and returns their number.
func listed(t *testing.T, c *Client) (n int, revision int64, err error) {
	t.Helper()
	revision, err = c.ListMetadata(t.Context(), client.ListRequest{Resource: foos}, func(client.Metadata) bool {
		n++
		return true
	})
	return n, revision, err
}

// TestListMetadata reads lists of several pages, and lists that are not valid or have no end.
func TestListMetadata(t *testing.T) {
	item := func(name string) string {
		return `{"metadata":{"name":"` + name + `","uid":"u","ownerReferences":[{"uid":"o"}]},"spec":{"metadata":5}}`
	}
	for _, test := range []struct {
		name    string
		answer  func(token string) string
		objects int
		failure string
	}{
		{"two pages", func(token string) string {
			if token == "" {
				return `{"items":[` + item("a") + `,` + item("b") + `],"metadata":{"resourceVersion":"7","continue":"x"}}`
			}
			return `{"kind":"FooList","metadata":{"resourceVersion":"8"},"items":[` + item("c") + `]}`
		}, 3, ""},
		{"no items", func(string) string { return `{"metadata":{"resourceVersion":"8"},"items":null}` }, 0, ""},
		{"tokens in a circle", func(token string) string {
			next := map[string]string{"": "a", "a": "b", "b": "a"}[token]
			return `{"metadata":{"continue":"` + next + `"},"items":[` + item("a") + `]}`
		}, 3, "continue token twice"},
		{"ever new tokens", func(token string) string {
			n, _ := strconv.Atoi(token)
			return fmt.Sprintf(`{"metadata":{"continue":"%d"},"items":[%s]}`, n+1,
				strings.Repeat(item(strings.Repeat("n", 1<<20))+",", 40)+item("a"))
		}, -1, "bytes of metadata"},
		{"a long token", func(string) string {
			return `{"metadata":{"continue":"` + strings.Repeat("t", maxToken+1) + `"},"items":[]}`
		}, 0, "too long"},
		{"a large object", func(string) string {
			return `{"items":[` + item("a") + `,` + item(strings.Repeat("n", 2*maxObject)) + `]}`
		}, -1, "object with more than"},
		{"endless spaces", func(string) string { return strings.Repeat(" ", 3*maxObject) }, 0, "object with more than"},
		{"a large page", func(string) string {
			return `{"items":[` + strings.Repeat(item(strings.Repeat("n", 1<<20))+",", 70) + item("a") + `]}`
		}, -1, "too many bytes"},
		{"not a list", func(string) string { return `[]` }, 0, "not a list"},
		{"items that are no list", func(string) string { return `{"items":{}}` }, 0, "not a list"},
		{"cut off", func(string) string { return `{"items":[` + item("a") }, 1, "EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if testing.Short() && (test.failure == "bytes of metadata" || test.failure == "too many bytes") {
				t.Skip("80 MB of JSON take longer than a call may under the race detector, beside other tests")
			}
			c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, test.answer(r.URL.Query().Get("continue")))
			})
			n, revision, err := listed(t, c)
			switch {
			case test.failure == "" && (err != nil || revision != 8):
				t.Errorf("revision %d, %v", revision, err)
			case test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)):
				t.Errorf("the error is %v", err)
			case test.objects >= 0 && n != test.objects:
				t.Errorf("%d objects", n)
			}
		})
	}
}

// TestErrorsOfExtensions checks that errors are those that the server sends.
func TestErrorsOfExtensions(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","reason":"NotFound","code":404,"details":{"name":"a"}}`)
		}
	})
	if _, _, err := listed(t, c); !kerrors.IsNotFound(err) {
		t.Errorf("list: %v", err)
	}
	if _, err := c.GetMetadata(t.Context(), client.Ref{Resource: foos, Name: "a"}); !kerrors.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
	if _, err := c.WatchMetadata(t.Context(), client.WatchRequest{Resource: foos}); !kerrors.IsNotFound(err) {
		t.Errorf("watch: %v", err)
	}
	if _, err := c.Delete(t.Context(), client.DeleteRequest{Ref: client.Ref{Resource: foos, Name: "a"}}); !kerrors.IsNotFound(err) {
		t.Errorf("delete: %v", err)
	}
}

// TestDeletionsWithLargeAnswers deletes a collection. The answer is a list that is larger than the part that is
// read.
func TestDeletionsWithLargeAnswers(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 2*maxObject))
	})
	if err := c.DeleteCollection(t.Context(), client.DeleteCollectionRequest{Resource: foos, Namespace: "n"}); err != nil {
		t.Error(err)
	}
}

// TestWatchMetadata reads events of any length up to the limit, and not more.
func TestWatchMetadata(t *testing.T) {
	event := func(name string) string {
		return `{"type":"ADDED","object":{"metadata":{"name":"` + name + `","resourceVersion":"3"}}}`
	}
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20 {
			_, _ = io.WriteString(w, event(strings.Repeat("n", i*usualEvent/4)))
		}
		_, _ = io.WriteString(w, event("last")+event(strings.Repeat("n", 3*maxObject)))
	})
	w, err := c.WatchMetadata(t.Context(), client.WatchRequest{Resource: foos})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range 21 {
		changes, revision, err := w.NextMetadata(t.Context(), nil)
		if err != nil || len(changes) != 1 || revision != 3 || i < 20 && len(changes[0].Name) != i*usualEvent/4 {
			t.Fatalf("event %d: %d changes, revision %d, %v", i, len(changes), revision, err)
		}
	}
	if _, _, err := w.NextMetadata(t.Context(), nil); !errors.Is(err, errPiece) {
		t.Errorf("a large event: %v", err)
	}
}

// TestWatchesEnd ends a watch after its number of events.
func TestWatchesEnd(t *testing.T) {
	text := strings.Repeat(`{"type":"BOOKMARK","object":{}}`, maxEvents+1)
	w := newWatch(io.NopCloser(strings.NewReader(text)), func() {})
	for i := range maxEvents {
		if _, _, err := w.NextMetadata(t.Context(), nil); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if _, _, err := w.NextMetadata(t.Context(), nil); !errors.Is(err, errManyEvents) {
		t.Errorf("the last event: %v", err)
	}
}

// TestCallsInFlight has a server that hangs. The calls beyond the bound are refused, calls of another sort are not.
func TestCallsInFlight(t *testing.T) {
	entered := make(chan struct{}, 100)
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is noticed from then on
			entered <- struct{}{}
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, `{}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, maxWrites)
	deletion := client.DeleteRequest{Ref: client.Ref{Resource: foos, Namespace: "n", Name: "a"}}
	for range maxWrites {
		go func() {
			_, err := c.Delete(ctx, deletion)
			ended <- err
		}()
	}
	for range maxWrites {
		select {
		case <-entered:
		case <-time.After(time.Minute):
			t.Fatal("waited a minute for the calls to arrive")
		}
	}
	for range 3 {
		if _, err := c.Delete(ctx, deletion); !kerrors.IsTooManyRequests(err) {
			t.Errorf("a call beyond the bound: %v", err)
		}
	}
	if _, err := c.GetMetadata(ctx, deletion.Ref); err != nil {
		t.Errorf("a read meanwhile: %v", err)
	}
	cancel()
	for range maxWrites {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled call: %v", err)
		}
	}
	again, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := c.Delete(again, client.DeleteRequest{Ref: deletion.Ref}); kerrors.IsTooManyRequests(err) {
		t.Error("the places of canceled calls are taken")
	}
}

// TestSameServiceSameBudget checks that versions of one server share its bound.
func TestSameServiceSameBudget(t *testing.T) {
	reference := &apiregistrationv1.ServiceReference{Namespace: "a", Name: "b"}
	a := &Aggregator{remotes: map[string]*remote{}}
	a.remotes["one"] = &remote{calls: a.budgetOf(reference)}
	if a.budgetOf(reference) != a.remotes["one"].calls {
		t.Error("two budgets for one server")
	}
	if other := (&apiregistrationv1.ServiceReference{Namespace: "a", Name: "c"}); a.budgetOf(other) == a.remotes["one"].calls {
		t.Error("one budget for two servers")
	}
}
