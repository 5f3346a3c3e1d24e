package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
)

// place is a step of the SDK in which a test lets a request fail.
type place struct {
	// repeated means that the step is done again for each repetition of the request.
	repeated bool
	// answered means that the service has handled the request before the step fails.
	answered bool
	// add puts a fault into the stack of an operation of the SDK. Only the place in the HTTP client is none.
	add func(*middleware.Stack, fault) error
}

// fault returns the error of a step, nil if it succeeds.
type fault func(context.Context) error

const (
	before, after     = middleware.Before, middleware.After
	unsent, answered  = false, true
	once, repeatingly = false, true
)

// places are the steps from the call of an operation to its result. Where a step comes twice, the second one is on the way back.
var places = map[string]place{
	"initialize":     {once, unsent, addInitialize(unsent)},
	"serialize":      {once, unsent, addSerialize(before)},
	"serialized":     {once, unsent, addSerialize(after)},
	"build":          {once, unsent, addBuild},
	"before retry":   {once, unsent, addFinalize("Retry", before, unsent)},
	"in a try":       {repeatingly, unsent, addFinalize("Retry", after, unsent)},
	"before signing": {repeatingly, unsent, addFinalize("Signing", before, unsent)},
	"signed":         {repeatingly, unsent, addFinalize("Signing", after, unsent)},
	"before sending": {repeatingly, unsent, addDeserialize(after, unsent)},
	"HTTP client":    {repeatingly, unsent, nil},
	"HTTP answer":    {repeatingly, answered, nil},
	"deserialize":    {repeatingly, answered, addDeserialize(after, answered)},
	"deserialized":   {repeatingly, answered, addDeserialize(before, answered)},
	"after a try":    {repeatingly, answered, addFinalize("Retry", after, answered)},
	"after retry":    {once, answered, addFinalize("Retry", before, answered)},
	"result":         {once, answered, addInitialize(answered)},
}

// around calls next, and the fault before or after it.
func around[In, Out any](
	late bool, f fault, ctx context.Context, in In, next func(context.Context, In) (Out, middleware.Metadata, error),
) (out Out, m middleware.Metadata, err error) {
	if !late {
		if err := f(ctx); err != nil {
			return out, m, err
		}
	}
	out, m, err = next(ctx, in)
	if late && err == nil {
		err = f(ctx)
	}
	return out, m, err
}

const faultID = "fault of a test"

func addInitialize(late bool) func(*middleware.Stack, fault) error {
	return func(s *middleware.Stack, f fault) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc(faultID, func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			return around(late, f, ctx, in, next.HandleInitialize)
		}), after)
	}
}

func addSerialize(at middleware.RelativePosition) func(*middleware.Stack, fault) error {
	return func(s *middleware.Stack, f fault) error {
		return s.Serialize.Add(middleware.SerializeMiddlewareFunc(faultID, func(
			ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler,
		) (middleware.SerializeOutput, middleware.Metadata, error) {
			return around(unsent, f, ctx, in, next.HandleSerialize)
		}), at)
	}
}

func addBuild(s *middleware.Stack, f fault) error {
	return s.Build.Add(middleware.BuildMiddlewareFunc(faultID, func(
		ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler,
	) (middleware.BuildOutput, middleware.Metadata, error) {
		return around(unsent, f, ctx, in, next.HandleBuild)
	}), after)
}

func addFinalize(beside string, at middleware.RelativePosition, late bool) func(*middleware.Stack, fault) error {
	return func(s *middleware.Stack, f fault) error {
		return s.Finalize.Insert(middleware.FinalizeMiddlewareFunc(faultID, func(
			ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
		) (middleware.FinalizeOutput, middleware.Metadata, error) {
			return around(late, f, ctx, in, next.HandleFinalize)
		}), beside, at)
	}
}

func addDeserialize(at middleware.RelativePosition, late bool) func(*middleware.Stack, fault) error {
	return func(s *middleware.Stack, f fault) error {
		return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc(faultID, func(
			ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
		) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, m, err := around(late, f, ctx, in, next.HandleDeserialize)
			if r, ok := out.RawResponse.(*smithyhttp.Response); ok && r != nil && err != nil {
				_ = r.Body.Close() // nobody reads it
			}
			return out, m, err
		}), at)
	}
}

// faultyClient is an HTTP client with a fault before or after a request.
type faultyClient struct {
	s3.HTTPClient
	late  bool
	fault fault
}

func (c *faultyClient) Do(r *http.Request) (*http.Response, error) {
	if !c.late {
		if err := c.fault(r.Context()); err != nil {
			return nil, err
		}
	}
	w, err := c.HTTPClient.Do(r)
	if err == nil && c.late {
		if err = c.fault(r.Context()); err != nil {
			return nil, errors.Join(err, w.Body.Close())
		}
	}
	return w, err
}

// inject returns a bucket whose requests of one operation of the SDK fail at a place when f returns an error. "" is every operation.
func inject(t *testing.T, b Bucket, name, call string, f fault) Bucket {
	t.Helper()
	p, found := places[name]
	if !found {
		t.Fatal("there is no place ", name)
	}
	limited := func(ctx context.Context) error {
		if call != "" && awsmiddleware.GetOperationName(ctx) != call {
			return nil
		}
		return f(ctx)
	}
	copied := *b.(*s3Bucket)
	copied.client = s3.New(copied.client.Options(), func(o *s3.Options) {
		if p.add == nil {
			o.HTTPClient = &faultyClient{o.HTTPClient, p.answered, limited}
			return
		}
		o.APIOptions = append(slices.Clip(o.APIOptions), func(s *middleware.Stack) error { return p.add(s, limited) })
	})
	return &copied
}

// injected is the error of a fault.
type injected struct{ again bool }

func (e *injected) Error() string { return "a fault of the test" }

// RetryableError tells the SDK whether a repetition may succeed.
func (e *injected) RetryableError() bool { return e.again }

// memory is an S3 service that keeps one object of Put and one of Swap, which no one else writes.
type memory struct {
	mu      sync.Mutex
	objects map[string]string // content by path
	tags    map[string]int    // the number of writes, which is the ETag
	parts   map[string]string // of the upload; nil if there is none
}

const objectPath, swappedPath = "/bkt/pre/a/name", "/bkt/pre/a/name.swapped"

func newMemory(swapped bool) *memory {
	m := &memory{objects: map[string]string{objectPath: "old"}, tags: map[string]int{objectPath: 1}}
	if swapped {
		m.objects[swappedPath] = string(version{id: "ID", content: []byte("old")}.encode())
		m.tags[swappedPath] = 1
	}
	return m
}

func (m *memory) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q, path := r.URL.Query(), r.URL.Path
	upload := q.Has("uploadId")
	_, exists := m.objects[path]
	tag := func() string { return fmt.Sprintf(`"%d"`, m.tags[path]) }
	switch ifMatch := r.Header.Get("If-Match"); {
	case upload && m.parts == nil:
		refuses(404, "NoSuchUpload")(w, r)
	case r.Method == http.MethodPost && q.Has("uploads"):
		m.parts = map[string]string{}
		says("", created)(w, r)
	case r.Method == http.MethodPut && upload:
		m.parts[q.Get("partNumber")] = string(body)
		says(`"part"`, "")(w, r)
	case r.Method == http.MethodPost:
		m.objects[path] = m.parts["1"] + m.parts["2"] + m.parts["3"]
		m.tags[path]++
		m.parts = nil
		says("", completed)(w, r)
	case r.Method == http.MethodDelete && upload:
		m.parts = nil
	case r.Method == http.MethodPut && (exists && r.Header.Get("If-None-Match") != "" || ifMatch != "" && ifMatch != tag()):
		refuses(412, "PreconditionFailed")(w, r)
	case r.Method == http.MethodPut:
		m.objects[path] = string(body)
		m.tags[path]++
		says(tag(), "")(w, r)
	case r.Method == http.MethodDelete:
		delete(m.objects, path)
	case path == "/bkt":
		says("", emptyList)(w, r)
	case !exists:
		refuses(404, "NoSuchKey")(w, r)
	default:
		says(tag(), m.objects[path])(w, r)
	}
}

// calls has the operations of a bucket, with the operations of the SDK that they call.
var calls = map[string][]string{
	"Get": {"GetObject"}, "Put": {"PutObject"}, "Delete": {"DeleteObject"}, "List": {"ListObjectsV2"}, "Load": {"GetObject"},
	"Create": {"PutObject", ""}, "Swap": {"PutObject", ""}, "Large": {"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"},
}

// TestS3Injected lets each operation fail at each step of the SDK: once or always with an error after which it may be repeated, and with one
// after which it may not.
func TestS3Injected(t *testing.T) {
	type faults struct {
		again bool
		most  int
	}
	for operation, names := range calls {
		list := []faults{{true, 1}, {true, 1000}, {false, 1}}
		if operation == "Large" && !effort.Full() { // each sends 20 MB
			list = list[:1]
		}
		for _, call := range names {
			for name := range places {
				for _, f := range list {
					title := fmt.Sprintf("%s/%s/%s/again=%v/most=%d", operation, call, name, f.again, f.most)
					t.Run(title, func(t *testing.T) {
						testInjected(t, operation, call, name, f.again, f.most)
					})
				}
			}
		}
	}
}

func testInjected(t *testing.T, operation, call, name string, again bool, most int) {
	m := newMemory(operation != "Create")
	withScript(t, []answer{m.serve}, func(t *testing.T, b Bucket, s *script) {
		failed := 0
		fails := &injected{again}
		b = inject(t, b, name, call, func(context.Context) error {
			if failed == most {
				return nil
			}
			failed++
			return fails
		})
		began := time.Now()
		err := operations[operation](t.Context(), b)
		if took := time.Since(began); took > 2*attempts*longestPause {
			t.Errorf("it took %v", took)
		}
		p := places[name]
		repeats := again && p.repeated
		swaps := operation == "Swap" || operation == "Create"
		// A try that has succeeded unseen makes the next one fail.
		recognized := swaps && p.answered && repeats
		lost := call == "CompleteMultipartUpload" && p.answered && repeats
		switch {
		case failed == 0:
			t.Error("nothing has failed")
		case lost:
			if err == nil || errors.Is(err, ErrNotFound) {
				t.Errorf("the upload is completed already: %v", err)
			}
		case repeats && most < attempts:
			if err != nil {
				t.Errorf("it is not repeated: %v", err)
			}
		case !errors.Is(err, fails) && !(recognized && (err == nil || errors.Is(err, errUnknown))):
			t.Errorf("the error is %v", err)
		}
		if want := map[bool]int{true: attempts, false: 1}[repeats && most > 1]; failed != want && !recognized && !lost {
			t.Errorf("%d requests have failed, want %d after\n%s", failed, want, s.seen())
		}
		if err != nil {
			checkMessage(t, err.Error(), operation, "")
		}
		if swaps && (errors.Is(err, ErrChanged) || errors.Is(err, ErrNoConditions)) {
			t.Errorf("nobody else writes, and Swap says %v", err)
		}
		m.check(t, operation, call, p, err)
	})
}

// check compares what is stored with the result of an operation.
func (m *memory) check(t *testing.T, operation, call string, p place, err error) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	path, old, now := objectPath, "old", "content"
	switch operation {
	case "Large":
		now = strings.Repeat("\x00", 5*(partSize/2))
	case "Swap", "Create":
		path = swappedPath
	case "Delete":
		now = ""
	case "Get", "List", "Load":
		now = old
	}
	got := m.objects[path]
	if path == swappedPath {
		_, got, _ = strings.Cut(got, "\n")
	}
	if operation == "Create" {
		old = ""
	}
	// A fault after the answer to the request that stores the object does not undo it.
	stored := err == nil || p.answered && (call == "PutObject" || call == "CompleteMultipartUpload" || call == "DeleteObject")
	if got != now && (stored || got != old) {
		t.Errorf("%d bytes are stored, want %d: %.20q (%v)", len(got), len(now), got, err)
	}
	if writes := m.tags[swappedPath]; operation == "Create" && writes > 1 || writes > 2 {
		t.Errorf("the object of Swap was written %d times", writes)
	}
	if m.parts != nil && !(call == "CreateMultipartUpload" && p.answered) { // its identifier is lost with the answer
		t.Error("the parts of the upload are left")
	}
}

// TestS3InjectedHang has steps of the SDK that end with their context only.
func TestS3InjectedHang(t *testing.T) {
	for operation, names := range calls {
		for name := range places {
			t.Run(operation+"/"+name, func(t *testing.T) {
				withScript(t, []answer{newMemory(operation != "Create").serve}, func(t *testing.T, b Bucket, _ *script) {
					const limit = 7 * time.Second
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					began := time.Now()
					err := operations[operation](ctx, inject(t, b, name, names[0], func(ctx context.Context) error {
						<-ctx.Done()
						return ctx.Err()
					}))
					if took := time.Since(began); took > limit+abortLimit {
						t.Errorf("it took %v", took)
					}
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrChanged) {
						t.Errorf("the error is %v", err)
					}
				})
			})
		}
	}
}
