package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary run as the floor server, which a run starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == floorCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// fake is the part of an API server that a run needs: it keeps bodies by path.
type fake struct {
	mu      sync.Mutex
	objects map[string]string
	deleted int
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "who?", http.StatusUnauthorized)
		return
	}
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimSuffix(r.URL.Path, "/status")
	switch r.Method {
	case http.MethodPost:
		var o struct {
			Metadata struct{ Name string }
		}
		_ = json.Unmarshal(body, &o)
		f.objects[path+"/"+o.Metadata.Name] = string(body)
		w.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		for k := range f.objects {
			if k == path || strings.HasPrefix(k, path+"/") {
				delete(f.objects, k)
				f.deleted++
			}
		}
	case http.MethodPatch:
		f.objects[path] = string(body)
	case http.MethodGet:
		f.get(w, r, path)
	}
}

func (f *fake) get(w http.ResponseWriter, r *http.Request, path string) {
	if path == "/version" {
		fmt.Fprint(w, `{"gitVersion":"v0.0.0-fake"}`)
		return
	}
	if o, ok := f.objects[path]; ok {
		fmt.Fprint(w, o)
		return
	}
	var items []string
	for k, o := range f.objects {
		if strings.HasPrefix(k, path+"/") {
			items = append(items, o)
		}
	}
	fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7"},"items":[%s]}`, strings.Join(items, ","))
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestARunMeasuresTheRowsAndCleansUp(t *testing.T) {
	f := &fake{objects: map[string]string{}}
	var out, progress bytes.Buffer
	err := command(
		context.Background(),
		[]string{
			"--server", serve(t, f), "--token", "secret", "--pods", "200", "--dir", t.TempDir(), "--label", "a fake", "--rows",
			"create-pods|list-json|list-page",
		},
		&out, &progress,
	)
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	for _, want := range []string{
		"## a fake", "v0.0.0-fake", "create pods, 64 in flight", "list page", "| 768/s", "synced Pebble commits",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "failed") {
		t.Errorf("a row failed:\n%s", &out)
	}
	if len(f.objects) > 0 {
		t.Errorf("%d objects are left", len(f.objects))
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"--server", "https://192.0.2.1:6443"},
		{"--server", "https://example.com"},
		{"--server", "http://127.0.0.1:6443"},
		{"--server", "https://127.0.0.1", "--start", "true"},
		{"--server", "https://127.0.0.1", "--rows", "("},
		{"--server", "https://127.0.0.1", "--pods", "0"},
		{"--server", "https://127.0.0.1", "extra"},
	} {
		if err := command(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// TestClient checks that the client sends and receives bodies of many sizes unchanged.
func TestClient(t *testing.T) {
	pattern := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Received", strconv.Itoa(len(body)))
		if !bytes.HasPrefix(pattern, body) {
			t.Errorf("a body of %d bytes came wrong", len(body))
		}
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		_, _ = w.Write(pattern[:n])
	}))
	address, err := loopback(url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(&target{address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, n := range []int{0, 1, 100, 16383, 16384, 16385, 1 << 20, 5<<20 + 3, 16 << 20} {
		a, err := c.do(
			&request{method: http.MethodPost, path: fmt.Sprintf("/?n=%d", n), accept: "*/*", body: pattern[:n]}, time.Minute,
		)
		if err != nil {
			t.Fatal(err)
		}
		if a.status != 200 || a.header["x-received"] != strconv.Itoa(n) || !bytes.Equal(a.body, pattern[:n]) {
			t.Errorf("%d bytes: status %d, the server read %s, %d came back", n, a.status, a.header["x-received"], len(a.body))
		}
	}
}

func TestSamplerFindsTimesInAnyPieces(t *testing.T) {
	now := time.Now()
	var all []byte
	const events = 5
	for i := range events {
		body, at := eventMap(strconv.Itoa(i))
		copy(body[at+len(mark):], strconv.FormatInt(now.UnixNano()-int64(i), 10))
		all = append(append(all, body...), '\n')
	}
	for size := 1; size < len(all); size += 7 {
		var m sampler
		var lag []time.Duration
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			lag = m.take(lag, rest[:n], now)
			rest = rest[n:]
		}
		if len(lag) != events {
			t.Fatalf("pieces of %d bytes: %d times", size, len(lag))
		}
		for i, d := range lag {
			if d != time.Duration(i) {
				t.Fatalf("pieces of %d bytes: time %d is %d off", size, i, d-time.Duration(i))
			}
		}
	}
}

// TestFanOutOnTheFloor runs the watch measurement with the floor server's handlers.
func TestFanOutOnTheFloor(t *testing.T) {
	f := &floorServer{woken: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /emit", f.serveEmit)
	mux.HandleFunc("GET /watch", f.serveWatch)
	address, err := loopback(serve(t, mux))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{floor: &floorProcess{target: target{address: address}}}
	const watchers, events, size, pace = 30, 50, 900, 500
	for _, pace := range []float64{0, pace} {
		d, err := b.fanOutFloor(watchers, events, size, pace)
		if err != nil {
			t.Fatal(err)
		}
		if d.events != watchers*events || d.bytes != size || len(d.lag) != watchers/sampleEvery*events {
			t.Errorf("pace %v: %d events of %d bytes, %d lags", pace, d.events, d.bytes, len(d.lag))
		}
		// No event is created before its planned time, so this holds on any machine.
		if least := time.Duration((events - 1) / pace * float64(time.Second)); pace > 0 && d.wall < least {
			t.Errorf("pace %v: %v for %d events, want %v at least", pace, d.wall, events, least)
		}
	}
}

func TestObjectsHaveTheirSizes(t *testing.T) {
	bodies := podBodies(1000)
	if n := len(bodies[0]); n < 2400 || n > 2600 {
		t.Errorf("a pod is %d bytes", n)
	}
	groups := 0
	for _, body := range bodies {
		if !json.Valid(body) {
			t.Fatalf("no JSON: %s", body)
		}
		if bytes.Contains(body, []byte(`"`+podGroup(0, len(bodies))+`"`)) {
			groups++
		}
	}
	if groups != groupSize {
		t.Errorf("%d pods of the first group", groups)
	}
	event, _ := eventMap("event-000000")
	for _, body := range [][]byte{statusPatch(7), configMap("a", 10), event} {
		if !json.Valid(body) {
			t.Errorf("no JSON: %s", body)
		}
	}
}

func TestEveryRowOfAStepIsExpected(t *testing.T) {
	b := &bench{options: &options{pods: 1000, long: true}}
	seen := map[string]bool{}
	for _, s := range b.steps() {
		for _, k := range s.keys {
			if _, ok := expected(k); !ok || seen[k] {
				t.Errorf("row %q is not expected, or measured twice", k)
			}
			seen[k] = true
		}
	}
	for _, e := range expectations {
		if !seen[e.key] {
			t.Errorf("row %q is measured by no step", e.key)
		}
	}
}
