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

// Exists reports whether there is an object.
func (s State) Exists() bool { return s.Revision != 0 }

// Kind is the kind of a request.
type Kind int

// Kinds of requests.
const (
	Create  Kind = iota
	Update       // a PUT with the resourceVersion that it replaces
	Replace      // a PUT or PATCH without a resourceVersion
	Delete       // with a precondition on the revision in Op.If, or without one
	Get          // consistent: sees the effect of every request that was answered before
	List         // consistent, or at exactly the revision in Op.If
)

func (k Kind) String() string {
	return [...]string{"create", "update", "replace", "delete", "get", "list"}[k]
}

// Writes reports whether a request of this kind changes something.
func (k Kind) Writes() bool { return k <= Delete }

// Outcome is what the client knows about the effect of a request.
type Outcome int

// Outcomes of requests.
const (
	Done     Outcome = iota // 2xx
	Conflict                // 409: the object exists, or is at another revision
	Missing                 // 404
	Refused                 // the response says that nothing was changed, for another reason
	Unknown                 // there was no response, or it does not say whether something was changed
)

func (o Outcome) String() string {
	return [...]string{"done", "conflict", "missing", "refused", "unknown"}[o]
}

// Forever is the Return of an Op that may still take effect at any later time.
const Forever = time.Duration(math.MaxInt64)

// Op is one request and its response.
type Op struct {
	Client int
	Kind   Kind
	Key    string // namespace/name; for a List the namespace, "" for all
	Value  string // that is written
	Label  string // that is written
	If     int64  // the revision in the request of Update, Delete or List; 0 if there is none

	// The request took effect between Call and Return, which are times since the start of the recorder.
	Call, Return time.Duration

	Outcome Outcome
	Status  int // of the response; 0 if there was none
	// Revision of the written object or of the list; 0 for a deletion, whose revision is not in the response.
	Revision int64
	Read     State            // by a Get
	Items    map[string]State // of a List, by key
}

func (o Op) String() string {
	s := fmt.Sprintf("client %d: %v %s", o.Client, o.Kind, o.Key)
	if o.If != 0 {
		s += fmt.Sprintf(" if at %d", o.If)
	}
	if o.Kind.Writes() && o.Kind != Delete {
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

// Recorder collects the Ops of concurrent clients.
type Recorder struct {
	start time.Time

	mu     sync.Mutex // guards the fields below
	ops    []Op
	frozen bool
	since  time.Duration // the time of Freeze; 0 if the recorder is not frozen
	worlds int           // the number of calls of Freeze and Thaw
}

// NewRecorder returns a Recorder and starts its clock.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now returns the time on the recorder's clock, which never goes backwards.
func (r *Recorder) Now() time.Duration { return time.Since(r.start) }

// Add records an Op that has ended. The Return of an Unknown write becomes Forever, until Settle is called. While the
// recorder is frozen, every write becomes Unknown, and requests that were sent after Freeze are not recorded.
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
		if !op.Kind.Writes() {
			return
		}
		op.Return = Forever
	}
	r.ops = append(r.ops, op)
}

// World returns the number of the current server incarnation ("world"). Freeze ends a world, and Thaw begins the next
// one.
func (r *Recorder) World() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.worlds
}

// RecordIn calls f, which records something that a client received from the server of a world, unless that world has
// ended. It reports whether it has called f.
func (r *Recorder) RecordIn(world int, f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen || r.worlds != world {
		return false
	}
	f()
	return true
}

// Freeze calls f while no other record is added. Nothing that is received afterwards counts until Thaw is called,
// because f has ended the world that sends it (by a power cut).
func (r *Recorder) Freeze(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.frozen, r.since = true, r.Now()
	r.worlds++
}

// Thaw ends Freeze. All clients must have added their requests in flight before.
func (r *Recorder) Thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = false
	r.worlds++
}

// Settle records that the server process has ended: requests in flight have taken effect by now, or never will. All
// clients must have added their requests in flight before.
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

// Take returns the Ops that were recorded since the last call.
func (r *Recorder) Take() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.ops
	r.ops = nil
	return out
}

// Counts returns the number of Ops of each kind and outcome.
func Counts(ops []Op) map[string]int {
	out := map[string]int{}
	for _, o := range ops {
		out[fmt.Sprintf("%v %v", o.Kind, o.Outcome)]++
	}
	return out
}

func clone(m map[string]State) map[string]State { return maps.Clone(m) }
