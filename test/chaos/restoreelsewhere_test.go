package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/test/history"
	"github.com/keelson-dev/keelson/test/rig"
	"github.com/keelson-dev/keelson/test/takeover"
)

// copyInterval is --backup-interval of TestRestoreElsewhere.
const copyInterval = 200 * time.Millisecond

// copied is a server with a copy in a directory, which is killed while clients write, and everything that is known about its changes.
type copied struct {
	t       *testing.T
	rng     *rand.Rand
	here    *program
	copy    string
	http    *http.Client
	rec     *history.Recorder
	started time.Time // when rec.Now was 0
	load    time.Time // when the clients began

	mu      sync.Mutex // guards the fields below
	changes []change   // in the order of their revisions, after the clients have ended
	behind  []lag
	ops     []history.Op            // writes with a revision
	unknown map[string][]history.Op // writes whose revisions are not known, by key
	killed  time.Duration           // on the clock of rec
}

// change is one change of an object; value is "" for a deletion.
type change struct {
	revision   int64
	key, value string
}

// lag is what the server said about its copy.
type lag struct {
	asked     time.Duration // on the clock of rec
	revisions float64
}

const (
	copiedNamespace = "elsewhere"
	copiedKeys      = 12
)

// TestRestoreElsewhere kills a server while six clients write, restores its copy to another directory, and starts a server there. At most the
// end is missing: what was answered earlier than the interval and a second before is there, there is no hole, and no change that was not
// made. States of random times and revisions, too, are those that the recorded changes give.
func TestRestoreElsewhere(t *testing.T) {
	t.Parallel()
	rng := rig.Seeded(t)
	for round := range rig.Rounds(2, 200) {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			c := newCopied(t, rng)
			c.run()
			end := c.restored("")
			c.checkEnd(end)
			c.checkRevision(end.revision)
			c.checkTime(end.revision)
			t.Logf("%d changes, restored to revision %d", len(c.changes), end.revision)
		})
		if t.Failed() {
			t.FailNow()
		}
	}
}

func newCopied(t *testing.T, rng *rand.Rand) *copied {
	t.Helper()
	transport := insecure()
	t.Cleanup(transport.CloseIdleConnections)
	c := &copied{
		t: t, rng: rng, here: buildProgram(t), copy: filepath.Join(t.TempDir(), "copy"), unknown: map[string][]history.Op{},
		http: &http.Client{Transport: transport, Timeout: patience}, started: time.Now(), rec: history.NewRecorder(),
	}
	c.here.flags = []string{"--backup-to", c.copy, "--backup-interval", copyInterval.String()}
	return c
}

func (c *copied) client(id int, url string) *rig.Client {
	return &rig.Client{ID: id, HTTP: c.http, Token: token, Rec: c.rec, Base: func() string { return url }}
}

// run starts the server, lets clients write, and kills it.
func (c *copied) run() {
	c.t.Helper()
	url, err := c.here.start()
	if err != nil {
		c.t.Fatal(err)
	}
	wait.Until(c.t, "the first image", func() bool {
		found, _ := filepath.Glob(filepath.Join(c.copy, "*", "image-*"))
		return len(found) > 0
	})
	if err := c.client(99, url).CreateNamespace(c.t.Context(), copiedNamespace); err != nil {
		c.t.Fatal(err)
	}
	from := c.client(99, url).List(c.t.Context(), copiedNamespace, 0)
	c.rec.Take()
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	c.load = time.Now()
	var running sync.WaitGroup
	running.Go(func() { // it ends with an error, because the server is killed
		_ = c.client(98, url).Watch(ctx, rig.WatchOptions{
			From: from.Revision, Selector: history.Selector{Namespace: copiedNamespace}, OnEvent: c.event,
		})
	})
	running.Go(func() { c.ask(ctx, url) })
	for i := range 6 {
		seed := c.rng.Uint64()
		running.Go(func() { c.write(ctx, c.client(i, url), rand.New(rand.NewPCG(seed, 1))) })
	}
	time.Sleep(time.Duration(1 + c.rng.Int64N(int64(4*time.Second)))) // the moment is random
	c.killed = c.rec.Now()
	c.here.kill()
	cancel()
	running.Wait()
	c.collect()
}

// event records an event of the watch.
func (c *copied) event(e history.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Type {
	case history.Bookmark:
	case history.Deleted:
		c.changes = append(c.changes, change{e.State.Revision, e.Key, ""})
	default:
		c.changes = append(c.changes, change{e.State.Revision, e.Key, e.State.Value})
	}
	return true
}

// ask asks the server how far its copy is behind until ctx ends.
func (c *copied) ask(ctx context.Context, url string) {
	for ctx.Err() == nil {
		l := lag{asked: c.rec.Now()}
		values, err := takeover.Metrics(ctx, c.http, url, token, "keelson_backup_behind_revisions")
		if err != nil {
			return
		}
		l.revisions = values[0]
		c.mu.Lock()
		c.behind = append(c.behind, l)
		c.mu.Unlock()
		time.Sleep(30 * time.Millisecond) // not a wait: the pause of a client
	}
}

// write writes until ctx ends.
func (c *copied) write(ctx context.Context, client *rig.Client, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%s/k%d", copiedNamespace, rng.IntN(copiedKeys))
		value := fmt.Sprintf("v%d-%d", client.ID, n)
		switch rng.IntN(4) {
		case 0:
			client.Delete(ctx, key, 0)
		case 1:
			client.Create(ctx, key, value, "red")
		default:
			client.Update(ctx, key, value, "red", 0)
		}
	}
}

// collect adds the changes that the watch has not sent any more.
func (c *copied) collect() {
	seen := int64(0)
	for _, x := range c.changes {
		seen = max(seen, x.revision)
	}
	deletions := map[string]int{} // that the watch has sent
	for _, x := range c.changes {
		if x.value == "" {
			deletions[x.key]++
		}
	}
	for _, op := range c.rec.Take() {
		switch {
		case !op.Kind.Writes() || op.Outcome != history.Done && op.Outcome != history.Unknown:
		case op.Kind == history.Delete && op.Outcome == history.Done && deletions[op.Key] > 0:
			deletions[op.Key]--
		case op.Outcome == history.Unknown || op.Kind == history.Delete:
			c.unknown[op.Key] = append(c.unknown[op.Key], op)
		case op.Revision > seen:
			c.changes = append(c.changes, change{op.Revision, op.Key, op.Value})
		}
		if op.Outcome == history.Done && op.Revision != 0 {
			c.ops = append(c.ops, op)
		}
	}
	slices.SortFunc(c.changes, func(a, b change) int { return int(a.revision - b.revision) })
}

// state is what a restore has made.
type state struct {
	revision int64 // of the copy
	values   map[string]string
}

var revisionOf = regexp.MustCompile(`The last change was made at .* \(revision (\d+)\)`)

// restored restores the copy as it was at a moment, starts a server there, and lists the objects.
func (c *copied) restored(at string) (out state) {
	c.t.Helper()
	elsewhere := buildProgram(c.t)
	arguments := []string{"restore", "--from", c.copy, "--data-dir", filepath.Join(elsewhere.dir, "data")}
	if at != "" {
		arguments = append(arguments, "--at", at)
	}
	said, err := elsewhere.command(c.t, patience, arguments...)
	if err != nil {
		c.t.Fatal(err)
	}
	found := revisionOf.FindStringSubmatch(said)
	if found == nil {
		c.t.Fatalf("the command does not say to which revision it has restored:\n%s", said)
	}
	out.revision, _ = strconv.ParseInt(found[1], 10, 64) // they are digits
	url, err := elsewhere.start()
	if err != nil {
		c.t.Fatal(err)
	}
	list := (&rig.Client{HTTP: c.http, Token: token, Rec: history.NewRecorder(), Base: func() string { return url }}).
		List(c.t.Context(), copiedNamespace, 0)
	elsewhere.kill()
	if list.Outcome != history.Done {
		c.t.Fatalf("the server elsewhere answers %v", list)
	}
	out.values = map[string]string{}
	for key, s := range list.Items {
		out.values[key] = s.Value
	}
	c.compare(at, out)
	return out
}

// compare compares a state with the one that the recorded changes give.
func (c *copied) compare(at string, got state) {
	c.t.Helper()
	want := map[string]string{}
	for _, x := range c.changes {
		if x.revision <= got.revision {
			want[x.key] = x.value
		}
	}
	for i := range copiedKeys {
		key := fmt.Sprintf("%s/k%d", copiedNamespace, i)
		allowed := []string{want[key]}
		for _, op := range c.unknown[key] {
			allowed = append(allowed, op.Value) // "" for a deletion
		}
		if !slices.Contains(allowed, got.values[key]) {
			c.t.Errorf("restored to %q, revision %d: %s is %q, want one of %q", at, got.revision, key, got.values[key], allowed)
		}
		delete(got.values, key)
	}
	if len(got.values) > 0 {
		c.t.Errorf("restored to %q: there are %v, which nobody has created", at, got.values)
	}
}

// checkEnd checks that only the end is missing.
func (c *copied) checkEnd(end state) {
	c.t.Helper()
	missing, slowest := c.killed, time.Duration(0)
	for _, op := range c.ops {
		slowest = max(slowest, op.Return-op.Call)
		if op.Revision > end.revision {
			missing = min(missing, op.Return)
		}
	}
	// A request waits for the disk as an object of the copy does, so a request tells how slow this machine is now.
	most := copyInterval + time.Second + 3*slowest
	c.t.Logf("the last %s before the kill are missing, the slowest request took %s", c.killed-missing, slowest)
	if c.killed-missing > most {
		c.t.Errorf("the last %s before the kill are missing, more than %s", c.killed-missing, most)
	}
	for _, l := range c.behind {
		n := 0
		for _, op := range c.ops {
			if op.Return < l.asked && op.Revision > end.revision {
				n++
			}
		}
		if float64(n) > l.revisions {
			c.t.Errorf("the copy was said to be %v changes behind, and %d that were made before are missing", l.revisions, n)
		}
	}
}

// checkRevision restores to a random revision up to the end.
func (c *copied) checkRevision(end int64) {
	c.t.Helper()
	if len(c.changes) == 0 || c.changes[0].revision > end {
		return
	}
	first := c.changes[0].revision
	want := first + c.rng.Int64N(end-first+1)
	if got := c.restored(strconv.FormatInt(want, 10)); got.revision != want {
		c.t.Errorf("restored to revision %d, want %d", got.revision, want)
	}
}

// checkTime restores to a random time.
func (c *copied) checkTime(end int64) {
	c.t.Helper()
	loaded := c.load.Sub(c.started)
	at := loaded + time.Duration(c.rng.Int64N(int64(c.killed-loaded)))
	text := c.started.Add(at).UTC().Format("2006-01-02T15:04:05.000Z")
	got := c.restored(text)
	for _, op := range c.ops {
		const unit = time.Millisecond // of the times of changes
		if got.revision < end && op.Return < at-unit && op.Revision > got.revision {
			c.t.Errorf("restored to %s, revision %d: %v was answered before %s and is missing", text, got.revision, op, at)
		}
		if op.Call > at+unit && op.Revision <= got.revision {
			c.t.Errorf("restored to %s, revision %d: %v was sent after %s and is there", text, got.revision, op, at)
		}
	}
}
