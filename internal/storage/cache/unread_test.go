package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
)

// lockedCodec is a fakeCodec for values that may begin with "KEY>". These can be read while the key is open. For
// keys that begin with "lost" the error is not a PendingError, as if no provider had them.
type lockedCodec struct {
	fakeCodec

	mu    sync.Mutex
	open  map[string]bool // keys that the codec has
	there map[string]bool // keys that the other program has
	came  chan struct{}   // closed when the other program gets a key
	asked map[string]int
}

func newLockedCodec() *lockedCodec {
	return &lockedCodec{
		open: map[string]bool{}, there: map[string]bool{}, came: make(chan struct{}), asked: map[string]int{},
	}
}

var errLost = errors.New("no provider has the key")

func (c *lockedCodec) Read(key string, value []byte, revision int64) (Header, error) {
	name, rest, locked := strings.Cut(string(value), ">")
	if !locked {
		return c.fakeCodec.Read(key, value, revision)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open[name]:
		return c.fakeCodec.Read(key, []byte(rest), revision)
	case strings.HasPrefix(name, "lost"):
		return Header{}, errLost
	}
	return Header{}, fmt.Errorf("reading %s: %w", key, &storage.PendingError{
		Need: name, Obtain: func(ctx context.Context) error { return c.obtain(ctx, name) },
	})
}

// obtain waits until the other program has the key, and then opens it in the codec.
func (c *lockedCodec) obtain(ctx context.Context, name string) error {
	c.mu.Lock()
	c.asked[name]++
	for !c.there[name] {
		came := c.came
		c.mu.Unlock()
		select {
		case <-came:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
	}
	c.open[name] = true
	c.mu.Unlock()
	return nil
}

// unlock gives a key to the other program.
func (c *lockedCodec) unlock(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[name] = true
	if strings.HasPrefix(name, "lost") {
		c.open[name] = true
	}
	close(c.came)
	c.came = make(chan struct{})
}

func lockedConfig(codec *lockedCodec) Config {
	config := podConfig()
	config.Codec = codec
	return config
}

// awaitRead waits until at most n objects are unread.
func awaitRead(t *testing.T, r *Resource, n int) {
	t.Helper()
	wait.Seen(t, fmt.Sprintf("at most %d objects to be unread", n), func() (bool, string) {
		unread := r.Unread()
		return unread <= n, fmt.Sprint(unread)
	})
}

func indexed(s Snapshot, value string) (keys []string) {
	s.Index("node", value, "", "", func(o *Object) bool {
		keys = append(keys, o.Key)
		return true
	})
	return keys
}

// TestFeedDoesNotWaitForKeys checks that an object that cannot be read does not delay other objects. When its key
// is available, the object becomes readable, with its labels and index entries.
func TestFeedDoesNotWaitForKeys(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	codec := newLockedCodec()
	r := c.Resource(lockedConfig(codec))
	other := c.Resource(Config{Resource: "others", Prefix: Root + "others/", Codec: fakeCodec{}})
	put(t, s, "a/early", "k1>n1|red|x") // the load finds this unread object
	from := snapshot(t, r, 0).Revision()
	snapshot(t, other, 0)
	cursor := watch(t, r, from, Interest{Index: "node", Value: "n1"})
	for i := range 8 {
		put(t, s, fmt.Sprintf("a/p%d", i), fmt.Sprintf("k%d>n%d|red|x", i%2, i%2))
	}
	last := commit(t, s, storage.Put(Root+"others/one", []byte("n1|red|x")))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if snap, err := other.Snapshot(ctx, last); err != nil || snap.Len() != 1 {
		t.Fatalf("another resource is held: %v", err)
	}
	old := snapshot(t, r, last)
	if old.Len() != 9 || old.Unread() != 9 || r.Unread() != 9 {
		t.Fatalf("%d objects, %d unread", old.Len(), old.Unread())
	}
	events, _, err := cursor.Next(ctx)
	if err != nil || len(events) != 8 {
		t.Fatalf("%d events concern a selector that they may match, %v", len(events), err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.Readable(left, events[0].Object); !errors.Is(err, context.Canceled) {
		t.Errorf("read without a key: %v", err)
	}

	codec.unlock("k0")
	awaitRead(t, r, 5)
	if keys := indexed(snapshot(t, r, last), "n0"); len(keys) != 4 {
		t.Errorf("listed by field: %v", keys)
	}
	codec.unlock("k1")
	awaitRead(t, r, 0)
	now := snapshot(t, r, last)
	if keys := indexed(now, "n1"); len(keys) != 5 || now.Unread() != 0 {
		t.Errorf("listed by field: %v", keys)
	}
	o, _ := now.Get("a/p1")
	if got := fmt.Sprint(o.Labels); got != "[{color red}]" || o.Err() != nil {
		t.Errorf("%+v", o)
	}
	// Holders of an old snapshot or event can read the object now, too.
	if old.Unread() != 9 {
		t.Error("a snapshot changed")
	}
	unread, _ := old.Get("a/p1")
	for _, held := range []*Object{unread, events[1].Object} {
		if readable, err := r.Readable(left, held); err != nil || len(readable.Data) == 0 {
			t.Errorf("read with the key at hand: %v", err)
		}
	}
	// Deletion events contain the previous object.
	remove(t, s, "a/p1")
	events, _, err = cursor.Next(ctx)
	if err != nil || len(events) != 1 || events[0].Prev.Err() != nil {
		t.Fatalf("%d events, %v", len(events), err)
	}
	codec.mu.Lock()
	defer codec.mu.Unlock()
	for name, n := range codec.asked {
		if n > 8 {
			t.Errorf("%s was asked for %d times", name, n)
		}
	}
	checkEncodings(t, c)
}

// TestReadableResolvesOthers checks that a call of Readable that waited for a key makes other objects readable too.
func TestReadableResolvesOthers(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	codec := newLockedCodec()
	r := c.Resource(lockedConfig(codec))
	put(t, s, "a/p", "lost1>n1|red|x")
	last := put(t, s, "a/q", "lost1>n1|red|x")
	o, _ := snapshot(t, r, last).Get("a/p")
	if _, err := r.Readable(t.Context(), o); !errors.Is(err, errLost) {
		t.Fatalf("error %v", err)
	}
	codec.unlock("lost1")
	if readable, err := r.Readable(t.Context(), o); err != nil || readable.Err() != nil {
		t.Fatal(err)
	}
	awaitRead(t, r, 0)
}

// TestRetryUnread checks that RetryUnread reads objects again even if it is not known what they need.
func TestRetryUnread(t *testing.T) {
	s := newFakeStore()
	c := newCache(t, s, nil)
	codec := newLockedCodec()
	r := c.Resource(lockedConfig(codec))
	last := put(t, s, "a/p", "lost1>n1|red|x")
	snapshot(t, r, last)
	codec.unlock("lost1")
	c.RetryUnread()
	awaitRead(t, r, 0)
	if keys := indexed(snapshot(t, r, last), "n1"); len(keys) != 1 {
		t.Errorf("listed by field: %v", keys)
	}
}

// TestUnreadAgainstPlain makes keys available in random order during changes. It checks that the resource ends in
// the same state as a resource without locked values.
func TestUnreadAgainstPlain(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newFakeStore()
	c := newCache(t, s, func(o *Options) { o.WindowBytes = 1 })
	codec := newLockedCodec()
	r := c.Resource(lockedConfig(codec))
	snapshot(t, r, 0)
	want := map[string]string{}
	var last int64
	for i := range 2000 {
		key, value := fmt.Sprintf("a/p%02d", random.IntN(60)), fmt.Sprintf("n%d|red|%d", random.IntN(5), i)
		switch random.IntN(10) {
		case 0:
			if want[key] != "" {
				last = remove(t, s, key)
				delete(want, key)
			}
			continue
		case 1, 2:
			last = put(t, s, key, value)
		default:
			last = put(t, s, key, fmt.Sprintf("k%d>%s", random.IntN(20), value))
		}
		want[key] = value
		if i%100 == 99 {
			codec.unlock(fmt.Sprintf("k%d", i/100))
		}
		if i%7 == 0 {
			if o, ok := snapshot(t, r, last).Get(key); ok {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, _ = r.Readable(ctx, o) // an error is allowed: o may be locked
				cancel()
			}
		}
	}
	snapshot(t, r, last)
	awaitRead(t, r, 0)
	now := snapshot(t, r, last)
	if now.Len() != len(want) {
		t.Errorf("%d objects, want %d", now.Len(), len(want))
	}
	fields := 0
	for i := range 5 {
		fields += len(indexed(now, fmt.Sprintf("n%d", i)))
	}
	if fields != len(want) {
		t.Errorf("%d objects listed by field, want %d", fields, len(want))
	}
	for key, value := range want {
		o, ok := now.Get(key)
		if !ok || string(o.Data) != fmt.Sprintf("%d:%s", o.Revision, value) {
			t.Errorf("%s: %+v, want %q", key, o, value)
		}
	}
	checkEncodings(t, c)
}
