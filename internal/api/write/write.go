// Package write executes all writes of clients, for every verb and subresource, and of the server itself. The list
// steps has the steps of a write in order.
//
// Verbs differ in how the new object is made (Request.Make): it is decoded from a body, or made from the current object
// by a patch, by server-side apply or by a function. The steps after that are the same.
package write

import (
	"context"
	"errors"
	"slices"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Verb is the kind of a write. It decides which steps are taken.
type Verb uint

const (
	// Create stores a new object.
	Create Verb = 1 << iota
	// Update changes an object: PUT, a patch, or a function of the server. If the kind or the request allows it,
	// an Update creates a missing object.
	Update
	// Apply is an Update by server-side apply, which records by itself who owns which fields.
	Apply
	// Scale changes the replicas of an object through its scale subresource.
	Scale
	// Delete removes an object or begins its deletion. The deletion of a collection is one Delete for each object;
	// several of them may run at the same time.
	Delete
	// Post sends a body to a subresource or to a kind whose objects are not stored: a binding, an
	// eviction, a token request, a review. Request.Act carries it out.
	Post
	// Amend changes an object as a part of a Post that was admitted already: a binding sets the node
	// of a pod.
	Amend
)

// A step is one step of a write. The first error ends the write.
type step struct {
	name string
	of   Verb // the verbs that take the step
	take func(*attempt, context.Context) error
}

// Sets of verbs in the list of steps.
const (
	every   = Create | Update | Apply | Scale | Delete | Post | Amend
	brings  = every &^ Delete                         // a new object, or a body
	present = Update | Apply | Scale | Delete | Amend // work on an object that is there
	objects = Create | Update | Apply | Scale         // store a new state of an object
)

// steps are all steps of a write, in order. If the object itself was changed concurrently, the write begins again
// at the first step. If a side write met a conflict, or a generated name is taken, it begins again at "complete".
// If it was a charge, it begins at "charge".
var steps = []step{
	{"read", present, (*attempt).read},                             // the current object
	{"make", brings, (*attempt).make},                              // decode the body, patch, apply; set defaults
	{"identify", Update | Apply | Scale, (*attempt).identify},      // the UID that the client has sent
	{"place", Create | Post, (*attempt).place},                     // in the namespace of the request
	{"managers", Create | Update | Post, (*attempt).recordManager}, // record in managedFields who set what
	{"convert", Create | Update | Apply, (*attempt).convert},       // to the version that is stored
	{"mutate", objects | Post, (*attempt).mutate},                  // admission may change the object
	{"merge", Scale, (*attempt).merge},                             // the object takes the replicas of the Scale
	{"check", present, (*attempt).check},                           // preconditions: resourceVersion, those of a deletion
	{"complete", objects | Amend, (*attempt).complete},             // what the server alone sets
	{"allocate", Create | Update | Apply, (*attempt).allocate},     // addresses and ports of Services
	// by the rules of the kind; of a deletion, what it does
	{"prepare", objects | Amend | Delete, (*attempt).prepare},
	{"validate", objects | Amend, (*attempt).validate},   // by the rules of all objects and of the kind
	{"normalize", objects | Amend, (*attempt).normalize}, // to the form that is stored; warnings
	// admission may refuse; a Post calls it in the step "act"
	{"admit", objects | Delete, (*attempt).admit},
	// what admission writes with the object: usage of quotas
	{"charge", objects, (*attempt).charge},
	{"commit", objects | Amend | Delete, (*attempt).commit}, // to the store, unless it is a dry run
	{"act", Post, (*attempt).act},                           // execute the Post
}

// A Pipeline carries out writes.
type Pipeline struct {
	// Admission changes and refuses writes; nil admits them all. Each write uses the chain that is Current at its beginning.
	Admission *admission.Chain
	// Authorizer decides whether the user of an update that creates the object may create it; nil allows all users.
	Authorizer authz.Authorizer
	// Registry has the objects that a Post may change.
	Registry *registry.Registry
	// Now is the time, for managedFields.
	Now func() time.Time
	// IgnorePropagation is true if there is no garbage collector: deletions ignore the propagation policy.
	IgnorePropagation bool

	managers managers
}

// New returns a Pipeline. Its fields other than registry may be nil.
func New(reg *registry.Registry, chain *admission.Chain, z authz.Authorizer, now func() time.Time) *Pipeline {
	if now == nil {
		now = time.Now
	}
	return &Pipeline{Registry: reg, Admission: chain, Authorizer: z, Now: now, managers: newManagers()}
}

// Options are the options of a write.
type Options = admission.Options

// Request is one write of one object. The user is in the context; without one it is the server itself.
type Request struct {
	Verb   Verb
	Target *registry.Served
	// Subresource is the subresource of the request; nil means the object itself.
	Subresource     *registry.Subresource
	Namespace, Name string
	Options         Options
	// CreateMissing lets an Update or Apply create an object that does not exist, also if the kind does not allow that
	// for all updates.
	CreateMissing bool
	// CheckUID makes a UID in the new object a precondition (PUT).
	CheckUID bool
	// Admitted means that admission was called for a write that includes this one.
	Admitted bool
	// Make returns the new object, in the version of Target, with defaults. For a Scale it is the autoscaling/v1 Scale,
	// for a Post the body. It is called again after a concurrent change. It is nil for a Delete.
	Make func(ctx context.Context, c *Current) (registry.Object, error)
	// Merge is for a Scale only. It returns the new state of the parent, in the storage version, after the change of its
	// Scale.
	Merge func(ctx context.Context, c *Current, scale registry.Object) (registry.Object, error)
	// Act carries out a Post.
	Act registry.CreateFunc
	// Body has the names of the body's kind, if it is not the kind of Target (Scale, Binding).
	Body *admission.Names
	// View converts an object of the storage version to the form in which admission sees it. In a write of a Scale it
	// returns the Scale of the object. nil means that admission sees the object itself.
	View func(obj registry.Object) registry.Object
	// Before returns the old object as mutating admission sees it. It is called after Make. In a write of a Scale it
	// returns the old Scale, with the field managers of the replicas. nil stands for the View of the old object.
	Before func() registry.Object
}

// shown returns an object in the form for admission.
func (r *Request) shown(obj registry.Object) registry.Object {
	if r.View == nil || obj == nil {
		return obj
	}
	return r.View(obj)
}

// Result is the object as it was stored, and the response to a Post.
type Result struct {
	registry.Result
	// Answer is the response to a Post; nil means a Status with Success.
	Answer registry.Object
}

// Current is the object that a write begins with. After a conflict there is a new Current: a Make must not keep
// the one that it got.
type Current struct {
	// Object is the current object, nil if there is none.
	Object *cache.Object
	target *registry.Served
	old    registry.Object
}

// Exists reports whether the object exists.
func (c *Current) Exists() bool { return c.Object != nil }

// Requested returns the object in the version of the request, nil if there is none. It is shared and
// must not be changed.
func (c *Current) Requested(ctx context.Context) (registry.Object, error) {
	switch {
	case !c.Exists():
		return nil, nil
	case c.target.Version.FromStorage == nil:
		return c.old, nil
	}
	return c.target.Resource.Decoder.DecodeAs(ctx, c.Object, c.target.Version)
}

// Stored returns the object in the storage version, nil if there is none. It is shared and must not be
// changed.
func (c *Current) Stored() registry.Object { return c.old }

// Copy returns a copy of Stored, which the caller owns.
func (c *Current) Copy() registry.Object { return c.old.DeepCopyObject().(registry.Object) }

// CopyRequested returns a copy of Requested, which the caller owns.
func (c *Current) CopyRequested(ctx context.Context) (registry.Object, error) {
	if c.target.Version.FromStorage == nil {
		return c.Copy(), nil
	}
	return c.Requested(ctx)
}

// maxNameRetries limits how often a new name is generated if a name exists. kube-apiserver generates a name again
// too (KEP-4420). A client that gets the conflict nevertheless can retry.
const maxNameRetries = 8

// Do carries out a write. The error is the one for the client.
func (p *Pipeline) Do(ctx context.Context, r Request) (Result, error) {
	a := &attempt{p: p, admission: p.Admission.Current(), Request: r, verb: r.Verb, span: tracing.FromContext(ctx)}
	defer a.endCharges(errUnfinished) // after a panic
	// The number of attempts has no limit: each conflict means that another write has succeeded. The end of the
	// request ends them.
	for first := 0; ; {
		err := a.run(ctx, first)
		a.endCharges(err)
		met := (*registry.Conflict)(nil)
		if err == nil || !errors.As(err, &met) {
			return a.result, err
		}
		if first, err = a.again(met); err != nil {
			return Result{}, err
		}
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
	}
}

// run executes the steps, beginning with the step of index first.
func (a *attempt) run(ctx context.Context, first int) error {
	for i := first; i < len(steps); i++ {
		if steps[i].of&a.verb == 0 {
			continue
		}
		// A request that was answered 504 may have ended meanwhile, but a committed write gets its response.
		if err := ctx.Err(); err != nil && i <= committing {
			return err
		}
		// The steps from "complete" on change obj in place. Another attempt that begins there needs the object as
		// it was.
		if i == completion && a.mayRepeat() {
			a.kept = a.obj.DeepCopyObject().(registry.Object)
		}
		if err := steps[i].take(a, ctx); err != nil {
			return err
		}
		a.span.Event(steps[i].name)
	}
	return nil
}

func stepIndex(name string) int {
	return slices.IndexFunc(steps, func(s step) bool { return s.name == name })
}

// completion and charging are the steps at which a write begins again after a conflict that is not about the state
// of its own object: charging for the conflict of a charge, else completion. committing is the step that commits.
// If the request ends before that step, the write ends too. The indexes follow from the names, so that a new step
// cannot shift them.
var completion, charging, committing = stepIndex("complete"), stepIndex("charge"), stepIndex("commit")

// mayRepeat reports whether the write may have to start again at "complete".
func (a *attempt) mayRepeat() bool {
	return a.Target.Resource.Writer.Allocator() != nil || a.creates() && a.generates
}

// again prepares the write for another attempt after a conflict, and returns the index of the step to begin with.
// This is the number of steps if nothing is left to do.
func (a *attempt) again(met *registry.Conflict) (int, error) {
	switch {
	// Another write was first at a side write: it took an address or a port, or charged the same quota.
	case met.SideWrite != nil:
		a.conflicts = append(a.conflicts, met.SideWrite)
		if a.charges.have(met.SideWrite.Condition.Key) {
			return charging, nil
		}
		if a.verb == Delete {
			return 0, nil // the released resources are computed again
		}
		a.obj = a.kept
		return completion, nil
	// The object is gone, which is what the client asked for. The response shows the mark, the last state that
	// this deletion has stored.
	case a.goneAfterMark(met.Found):
		a.result.Result = a.marked
		a.result.Deleted = true
		return len(steps), nil
	// The generated name is taken; "complete" generates another one.
	case a.verb == Create && a.generates && a.tries < maxNameRetries:
		a.tries++
		a.obj = a.kept
		return completion, nil
	case a.verb == Create && met.Err != nil:
		return 0, kerrors.NewAlreadyExists(a.Target.GroupResource(), a.obj.GetName())
	case a.verb == Create:
		return 0, alreadyExists(a.Target, a.obj, met.Found)
	}
	// The conflict brings the current object, so the next attempt does not read it again.
	a.found, a.looked = met.Found, true
	return 0, met.Err
}

// attributes describes the write for admission.
func (a *attempt) attributes(ctx context.Context, obj, old registry.Object) *admission.Attributes {
	t := a.Target
	kind, resource := t.Stored()
	out := &admission.Attributes{
		Resource: t.GroupResource(), Namespace: a.Namespace, Name: a.Name, Object: obj, Old: old,
		Requested: admission.Names{Kind: t.GVK, Resource: t.GVR}, Stored: admission.Names{Kind: kind, Resource: resource},
		Options: a.Options, User: request.UserFrom(ctx),
	}
	switch {
	// kube-apiserver calls admission for the objects of a deletecollection without their names.
	case a.Options.Collection:
		out.Name = ""
	case out.Name == "" && obj != nil:
		out.Name = obj.GetName() // it may have been generated meanwhile
	}
	if a.Subresource != nil {
		out.Subresource = a.Subresource.Name
	}
	if a.Body != nil {
		out.Requested.Kind, out.Stored.Kind = a.Body.Kind, a.Body.Kind
	}
	switch {
	case a.verb == Delete:
		out.Operation = admission.Delete
	case old != nil:
		out.Operation = admission.Update
	}
	return out
}
