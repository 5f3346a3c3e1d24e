package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/history"
)

// namespaces are the namespaces of the objects; each watcher selects one or all of them.
var namespaces = []string{"chaos-a", "chaos-b"}

// Colors are the values of the label that watchers select by.
var Colors = []string{"red", "blue", ""}

// Scenario is a load of clients that write, read and watch over HTTP, while the server is stopped and started, round
// after round. After every round the new part of the history is checked.
type Scenario struct {
	Rng   *rand.Rand
	Rec   *history.Recorder
	Token string
	// Round counts from 0; the test increments it.
	Round int
	// Gentle means that no request is cancelled before Patience has passed, so that no request is in flight at the end
	// of a round.
	Gentle bool
	// Padding makes values longer.
	Padding string
	// Patience is how long the scenario waits for something that must happen before it reports an error.
	Patience time.Duration
	// Log has all changes up to the last Check.
	Log *history.Log

	t    *testing.T
	http *http.Client
	// bases are the URLs of the servers, empty while no server runs. honest is the URL of a server on the same store
	// without planted faults.
	bases  atomic.Pointer[[]string]
	honest atomic.Pointer[string]

	followers []*Informer
	stop      context.CancelFunc // stops the watchers
	running   sync.WaitGroup

	checked int // the number of checked requests
	past    []history.Op
	values  atomic.Int64
	totals  map[string]int
	watches int
	events  int
}

// number returns a number of the environment.
func number(name string, without int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return without
}

// Rounds returns the number of rounds of a test: the value of KEELSON_CHAOS_ROUNDS, or long if KEELSON_LONG is set,
// otherwise short.
func Rounds(short, long int) int {
	if os.Getenv("KEELSON_LONG") != "" {
		short = long
	}
	return number("KEELSON_CHAOS_ROUNDS", short)
}

// Seeded returns a source of random choices. The seed is the value of KEELSON_CHAOS_SEED, or random.
func Seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(number("KEELSON_CHAOS_SEED", int(time.Now().UnixNano())))
	t.Logf("seed %d (KEELSON_CHAOS_SEED)", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// NewScenario returns a scenario. The test calls At to set the URLs of the servers.
func NewScenario(t *testing.T, rng *rand.Rand, client *http.Client) *Scenario {
	s := &Scenario{
		t: t, Rng: rng, Rec: history.NewRecorder(), http: client, totals: map[string]int{}, Patience: time.Minute,
	}
	s.At("")
	t.Cleanup(func() {
		if s.stop != nil {
			s.stop()
		}
		s.running.Wait()
	})
	return s
}

// At sets the URLs of the servers: honest is a server without planted faults; bases are the servers that clients use,
// each client one of them.
func (s *Scenario) At(honest string, bases ...string) {
	s.bases.Store(&bases)
	s.honest.Store(&honest)
}

// Client returns a client of one of the servers.
func (s *Scenario) Client(id int) *Client {
	base := func() string {
		bases := *s.bases.Load()
		if len(bases) == 0 {
			return ""
		}
		return bases[id%len(bases)]
	}
	return &Client{ID: id, HTTP: s.http, Token: s.Token, Rec: s.Rec, Base: base}
}

func (s *Scenario) auditor() *Client {
	c := s.Client(1000)
	c.Base = func() string { return *s.honest.Load() }
	return c
}

// Begin creates the namespaces and starts the watchers at the first revision of the log. The server must be running.
func (s *Scenario) Begin(follow bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	first, leave := context.WithTimeout(ctx, s.Patience)
	defer leave()
	for _, n := range namespaces {
		if err := s.Client(999).CreateNamespace(first, n); err != nil {
			s.t.Fatal(err)
		}
	}
	list := s.auditor().List(first, "", 0)
	if list.Outcome != history.Done {
		s.t.Fatalf("the first list: %v", list)
	}
	s.Log = history.NewLog(list.Revision, list.Items)
	if !follow {
		return
	}
	for i, f := range []*Informer{
		{Name: "all"},
		{Name: "all, short", Seconds: 3},
		{Name: "namespace", Selector: history.Selector{Namespace: namespaces[0]}},
		{Name: "label", Selector: history.Selector{Label: "red"}},
		{Name: "label in a namespace", Selector: history.Selector{Namespace: namespaces[1], Label: "blue"}, Seconds: 3},
		{Name: "name", Selector: history.Selector{Name: "lasting"}},
	} {
		f.Client = s.Client(100 + i)
		if i != 1 {
			f.Start(list.Revision)
		}
		s.followers = append(s.followers, f)
		s.running.Go(func() { f.Run(ctx) })
	}
}

// Load runs the clients until ctx ends.
func (s *Scenario) Load(ctx context.Context, writers, readers int) {
	requests := ctx
	if s.Gentle {
		// A server that does not answer is left all the same.
		patient, leave := context.WithCancel(context.WithoutCancel(ctx))
		defer leave()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(s.Patience, leave) })()
		requests = patient
	}
	var wg sync.WaitGroup
	for i := range writers + readers {
		seed := s.Rng.Uint64()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			c := s.Client(i)
			for ctx.Err() == nil {
				if i < writers {
					s.write(requests, c, rng)
				} else {
					s.read(requests, c, rng)
				}
			}
		})
	}
	wg.Wait()
}

// key returns a random key: of this round, of the last round, or of the objects that exist in all rounds.
func (s *Scenario) key(rng *rand.Rand) string {
	namespace := namespaces[rng.IntN(len(namespaces))]
	if rng.IntN(20) == 0 {
		return namespace + "/lasting"
	}
	return roundKey(namespace, max(s.Round-rng.IntN(2), 0), rng.IntN(objects))
}

const objects = 4 // of a round, in each namespace

func roundKey(namespace string, round, i int) string {
	return fmt.Sprintf("%s/r%d-%d", namespace, round, i)
}

// Fresh returns a key that no object has had before.
func (s *Scenario) Fresh(name string) string {
	return fmt.Sprintf("%s/%s-%d", namespaces[0], name, s.values.Add(1))
}

func (s *Scenario) Value() string { return fmt.Sprintf("v%d%s", s.values.Add(1), s.Padding) }

// write sends one random write. It cancels some requests early, so that their responses are unknown.
func (s *Scenario) write(ctx context.Context, c *Client, rng *rand.Rand) {
	if !s.Gentle && rng.IntN(25) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	key, value, color := s.key(rng), s.Value(), Colors[rng.IntN(len(Colors))]
	switch rng.IntN(10) {
	case 0, 1, 2:
		c.Create(ctx, key, value, color)
	case 3, 4, 5:
		read := c.Get(ctx, key)
		if read.Outcome != history.Done {
			c.Create(ctx, key, value, color)
			return
		}
		c.Update(ctx, key, value, color, read.Read.Revision)
	case 6:
		c.Update(ctx, key, value, color, 0)
	case 7:
		c.Patch(ctx, key, value, []string{"red", "blue"}[rng.IntN(2)])
	case 8:
		c.Delete(ctx, key, 0)
	case 9:
		if read := c.Get(ctx, key); read.Outcome == history.Done {
			c.Delete(ctx, key, read.Read.Revision)
		}
	}
}

func (s *Scenario) read(ctx context.Context, c *Client, rng *rand.Rand) {
	namespace := []string{"", namespaces[0], namespaces[1]}[rng.IntN(3)]
	switch rng.IntN(4) {
	case 0:
		if now := c.List(ctx, namespace, 0); now.Outcome == history.Done && now.Revision-s.Log.From > 1 {
			c.List(ctx, namespace, now.Revision-rng.Int64N(min(now.Revision-s.Log.From, 200)))
		}
	case 1:
		c.List(ctx, namespace, 0)
	default:
		c.Get(ctx, s.key(rng))
	}
}

// Check extends the log up to the current revision and checks what was recorded since the last call. The server must
// be running, and no other client may be writing.
func (s *Scenario) Check() error {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	base := s.Log.Last()
	before := make(map[string]history.State, len(base))
	for key, state := range base {
		before[key] = state
	}
	from := s.Log.To()
	if err := s.extend(ctx); err != nil {
		return err
	}
	if s.Round%100 == 99 {
		s.t.Logf("round %d: revision %d, %d objects", s.Round, s.Log.To(), len(s.Log.Last()))
	}
	ops := s.Rec.Take()
	s.checked += len(ops)
	for what, n := range history.Counts(ops) {
		s.totals[what] += n
	}
	part := s.Log.Since(from)
	errs := []error{
		history.CheckLog(ops, part),
		history.CheckLinearizable(ops, before, s.Patience),
		history.CheckOrder(append(s.past, ops...)),
		s.resume(ctx, part),
	}
	s.past = highest(ops, s.past)
	return errors.Join(append(errs, s.checkFollowers(ctx))...)
}

// highest returns the response with the highest revision. Later responses must have higher revisions.
func highest(ops, past []history.Op) []history.Op {
	var best history.Op
	for _, o := range append(past, ops...) {
		if o.Outcome == history.Done && o.If == 0 && o.Kind != history.Get && o.Revision >= best.Revision {
			best = o
		}
	}
	return []history.Op{best}
}

// extend extends the log up to the revision of a write that it makes.
func (s *Scenario) extend(ctx context.Context) error {
	c := s.auditor()
	// It deletes the objects of earlier rounds, so that lists stay short.
	for _, namespace := range namespaces {
		for i := range objects {
			if key := roundKey(namespace, s.Round-1, i); s.Round > 0 && s.Round%10 != 0 {
				c.Delete(ctx, key, 0)
			}
		}
	}
	var mark history.Op
	for mark.Outcome != history.Done || mark.Revision == 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("no write succeeds any more: %v", mark)
		}
		if mark = c.Update(ctx, namespaces[0]+"/mark", s.Value(), "red", 0); mark.Outcome == history.Missing {
			mark = c.Create(ctx, namespaces[0]+"/mark", s.Value(), "red")
		}
	}
	if mark.Revision <= s.Log.To() {
		detail := fmt.Sprintf("%v; the log was at revision %d before", mark, s.Log.To())
		return errors.Join(&history.Violation{Promise: history.ErrRevision, Where: "log", Detail: detail},
			&history.Violation{Promise: history.ErrDurable, Where: "log", Detail: detail})
	}
	w, err := s.watchTo(ctx, c, s.Log.To(), mark.Revision)
	if err != nil {
		return fmt.Errorf("reading the log from %d to %d: %w", s.Log.To(), mark.Revision, err)
	}
	return s.Log.AppendWatch(w)
}

// watchTo watches all changes above revision from, up to revision to.
func (s *Scenario) watchTo(ctx context.Context, c *Client, from, to int64) (history.Watch, error) {
	w := history.Watch{Name: "audit", From: from, Through: to}
	err := c.Watch(ctx, WatchOptions{From: from, OnEvent: func(e history.Event) bool {
		w.Events = append(w.Events, e)
		return e.State.Revision < to
	}})
	return w, err
}

// resume starts a watch at a revision of the last round that a client has seen.
func (s *Scenario) resume(ctx context.Context, part *history.Log) error {
	changes := part.Changes()
	seen := changes[s.Rng.IntN(len(changes))].State.Revision
	if seen == part.To() {
		return nil
	}
	w, err := s.watchTo(ctx, s.Client(998), seen, part.To())
	if err != nil {
		return fmt.Errorf("resuming from %d: %w", seen, err)
	}
	return history.CheckWatch(w, s.Log)
}

// checkFollowers waits until the watchers have received all changes that concern them, and checks the watches that
// have ended.
func (s *Scenario) checkFollowers(ctx context.Context) error {
	for _, f := range s.followers {
		for want := s.Log.LastOf(f.Selector, s.Log.From); f.Seen() < want; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				return &history.Violation{
					Promise: history.ErrReliable, Where: f.Name,
					Detail: fmt.Sprintf("it has seen %d and is not sent %d", f.Seen(), want),
				}
			}
			if _, err := f.Ended(); err != nil {
				return err
			}
		}
	}
	return s.checkEnded()
}

func (s *Scenario) checkEnded() error {
	for _, f := range s.followers {
		watches, err := f.Ended()
		if err != nil {
			return err
		}
		for i, w := range watches {
			s.watches++
			s.events += len(w.Events)
			if err := history.CheckWatch(w, s.Log); err != nil {
				return err
			}
			if i > 0 {
				if err := history.CheckResume(watches[i-1], w); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// End stops the watchers and checks their last watches.
func (s *Scenario) End() error {
	s.stop()
	s.running.Wait()
	err := s.checkEnded()
	s.t.Logf(
		"%d rounds, %d requests, %d changes to revision %d, %d watches with %d events", s.Round, s.checked,
		len(s.Log.Changes()), s.Log.To(), s.watches, s.events,
	)
	s.t.Logf("requests: %v", s.totals)
	return err
}
