package history

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"
)

// State is an object as a client sees it. The zero State is an object that does
// not exist.
type State struct {
	Revision int64 // resourceVersion
	Value    string
	Label    string // the value of the one label that selectors look at
}

// Exists says that there is an object.
func (s State) Exists() bool { return s.Revision != 0 }

// Kind is what an Op asks for.
type Kind int

// Kinds of requests.
const (
	Create  Kind = iota
	Update       // a PUT that states the revision it replaces
	Replace      // a PUT or PATCH without one
	Delete       // with a revision in Op.If, or without
	Get          // consistent: sees all that was answered before
	List         // consistent, or of exactly the revision in Op.If
)

func (k Kind) String() string {
	return [...]string{"create", "update", "replace", "delete", "get", "list"}[k]
}

// writes says that the request changes something.
func (k Kind) writes() bool { return k <= Delete }

// Outcome is what the client knows afterwards.
type Outcome int

// Outcomes of requests.
const (
	Done     Outcome = iota // 2xx
	Conflict                // 409: the object exists, or is at another revision
	Missing                 // 404
	Refused                 // answered that nothing changed, for a reason of no interest
	Unknown                 // no answer, or one that does not say
)

func (o Outcome) String() string {
	return [...]string{"done", "conflict", "missing", "refused", "unknown"}[o]
}

// Forever is the Return of an Op that may still take effect at any time.
const Forever = time.Duration(math.MaxInt64)

// Op is one request and its answer.
type Op struct {
	Client int
	Kind   Kind
	Key    string // namespace/name; of a List the namespace, "" for all
	Value  string // written
	Label  string // written
	If     int64  // the revision that Update, Delete or List ask for; 0 is none

	// Call and Return bound when the request took effect, since the recorder's
	// start.
	Call, Return time.Duration

	Outcome Outcome
	Status  int // of the answer; 0 if there was none
	// Revision is that of the object written, or of the list. A deletion's is
	// not known: 0.
	Revision int64
	Read     State            // of Get
	Items    map[string]State // of List, by key
}

func (o Op) String() string {
	s := fmt.Sprintf("client %d: %v %s", o.Client, o.Kind, o.Key)
	if o.If != 0 {
		s += fmt.Sprintf(" if at %d", o.If)
	}
	if o.Kind.writes() && o.Kind != Delete {
		s += fmt.Sprintf(" %q (%s)", o.Value, o.Label)
	}
	s += fmt.Sprintf(": %v", o.Outcome)
	if o.Revision != 0 {
		s += fmt.Sprintf(" at %d", o.Revision)
	}
	if o.Kind == Get && o.Outcome == Done {
		s += fmt.Sprintf(" %+v", o.Read)
	}
	until := "?"
	if o.Return != Forever {
		until = o.Return.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%s [%v, %s]", s, o.Call.Round(time.Microsecond), until)
}

// Recorder collects Ops of concurrent clients.
type Recorder struct {
	start time.Time

	mu     sync.Mutex // guards the rest
	ops    []Op
	frozen bool
	since  time.Duration // it is frozen
	worlds int           // that began or ended
}

// NewRecorder starts a recorder's clock.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now is the time on the recorder's clock, which never goes back.
func (r *Recorder) Now() time.Duration { return time.Since(r.start) }

// Add takes an Op that has ended. The Return of an Unknown write is not believed:
// it is Forever until Settle. While the recorder is frozen every write is Unknown,
// and what was not asked before is not taken.
func (r *Recorder) Add(op Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		if op.Call >= r.since {
			return
		}
		op.Outcome, op.Revision = Unknown, 0
	}
	if op.Outcome == Unknown {
		if !op.Kind.writes() {
			return
		}
		op.Return = Forever
	}
	r.ops = append(r.ops, op)
}

// World names the present world: it ends with Freeze, and Thaw begins another.
func (r *Recorder) World() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.worlds
}

// Told calls f, which notes what a client was told by the server of a world,
// unless that world was taken away; it returns whether it did.
func (r *Recorder) Told(world int, f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen || r.worlds != world {
		return false
	}
	f()
	return true
}

// Freeze calls f at a moment at which nobody is told anything. What is told
// afterwards does not count until Thaw, because f took the world away that says it
// (a power cut).
func (r *Recorder) Freeze(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.frozen, r.since = true, r.Now()
	r.worlds++
}

// Thaw ends Freeze. All clients must have added what they had in flight.
func (r *Recorder) Thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = false
	r.worlds++
}

// Settle says that the process that was asked is gone: what was in flight has
// taken effect by now or never will. All clients must have added what they had in
// flight.
func (r *Recorder) Settle() {
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.ops) - 1; i >= 0; i-- {
		if r.ops[i].Return == Forever {
			r.ops[i].Return = now
		}
	}
}

// Take returns what was recorded since the last call.
func (r *Recorder) Take() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.ops
	r.ops = nil
	return out
}

// Counts says how many Ops of each kind and outcome there are.
func Counts(ops []Op) map[string]int {
	out := map[string]int{}
	for _, o := range ops {
		out[fmt.Sprintf("%v %v", o.Kind, o.Outcome)]++
	}
	return out
}

func clone(m map[string]State) map[string]State { return maps.Clone(m) }
