package write

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/managedfields"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// An attempt is one write on its way through the steps.
type attempt struct {
	p         *Pipeline
	admission *admission.Chain // the same for all attempts at a write
	Request
	verb Verb
	span tracing.Span // of the request; each step is an event in it

	found   *cache.Object // the current object; nil if there is none
	looked  bool          // found is known from the conflict of an earlier attempt
	current *Current
	// obj is the new object: in the version of the request up to "convert", in the storage version after
	// it. In a write of a Scale it is the Scale up to "merge".
	obj registry.Object
	// kept is obj as it was before "complete", for another attempt.
	kept      registry.Object
	generates bool   // the name is to be generated
	tries     int    // names that were taken
	effect    effect // of a Delete
	// marked is set when a deletion has stored the mark of the object (removeMarked) and is about to remove it.
	marked registry.Result

	sideWrites registry.SideWrites
	approved   *admission.Attributes // what validating admission has approved; nil if it was not asked
	charges    charges
	conflicts  []*storage.ConflictError // failed side writes of earlier attempts
	result     Result
}

// creates reports whether the write creates an object.
func (a *attempt) creates() bool {
	return a.verb == Create || a.verb&(Update|Apply) != 0 && a.found == nil
}

// old returns the object before the write in the storage version; nil if there is none.
func (a *attempt) old() registry.Object {
	if a.current == nil {
		return nil
	}
	return a.current.old
}

// read finds the current object.
func (a *attempt) read(ctx context.Context) (err error) {
	if !a.looked {
		latest := a.Target.Resource.Reader.Latest
		if a.verb == Delete {
			latest = a.Target.Resource.Reader.LatestForDeletion
		}
		if a.found, err = latest(ctx, a.Namespace, a.Name); err != nil {
			return err
		}
	}
	// What a conflict brought is used once: if the next attempt fails too, the object may have changed again.
	a.looked = false
	a.current = &Current{target: a.Target}
	if a.found == nil {
		// A subresource never creates its object: a PUT of the status of a missing object gets 404, whatever the
		// kind allows.
		if a.verb&(Update|Apply) != 0 && a.Subresource == nil && (a.CreateMissing || a.Target.Kind.Requests.CreateOnUpdate) {
			return nil
		}
		return kerrors.NewNotFound(a.Target.GroupResource(), a.Name)
	}
	// A value that cannot be read, for example because its key is missing, is not overwritten: the write fails.
	if a.found, err = a.Target.Resource.Reader.Readable(ctx, a.found); err != nil {
		return err
	}
	a.current.Object = a.found
	// A deletion uses the stored version, so that it does not depend on a conversion webhook.
	if a.verb == Delete {
		a.current.old, err = a.Target.Resource.Decoder.DecodeStored(a.found)
	} else {
		a.current.old, err = a.Target.Resource.Decoder.DecodeForWrite(ctx, a.found)
	}
	return err
}

// make makes the new object, or the body of a Post. A client need not send the namespace of an update: make sets it from the
// request, before admission sees the object.
func (a *attempt) make(ctx context.Context) (err error) {
	a.obj, err = a.Make(ctx, a.current)
	if err != nil || a.verb&(Update|Apply|Scale) == 0 {
		return err
	}
	switch own := a.obj.GetNamespace(); {
	case own == "" && a.Target.Kind.Namespaced:
		a.obj.SetNamespace(a.Namespace)
	case own != "" && !a.Target.Kind.Namespaced:
		a.obj.SetNamespace("")
	}
	return nil
}

// place puts a new object in the namespace of the request, and removes fields that a client cannot set.
func (a *attempt) place(context.Context) error {
	if a.verb == Create {
		if err := takesNew(a.Target, a.obj.GetName()); err != nil {
			return err
		}
	}
	// The UID in the body of a Post to a subresource is kept: in a Binding it is a precondition for the pod.
	if a.verb == Create || a.Subresource == nil {
		wipeServerFields(a.obj)
	}
	// A body without a namespace is accepted: the namespace in the path is enough.
	if own := a.obj.GetNamespace(); a.Target.Kind.Namespaced && own != "" && own != a.Namespace {
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	a.obj.SetNamespace(a.Namespace)
	if a.Name == "" {
		a.Name = a.obj.GetName()
	}
	a.generates = a.obj.GetName() == "" && a.obj.GetGenerateName() != ""
	return nil
}

// manager returns the field manager for the object, or for the body of a Post.
func (a *attempt) manager() (*managedfields.Manager, error) {
	if a.verb == Post && a.Subresource != nil {
		return a.p.managers.ofBody(a.Target, a.Subresource, a.Subresource.New)
	}
	return a.p.managers.of(a.Target, a.Subresource)
}

// recordManager records in managedFields which fields the manager of the request has set.
func (a *attempt) recordManager(ctx context.Context) error {
	m, err := a.manager()
	if err != nil {
		return err
	}
	var live registry.Object
	if a.current != nil {
		if live, err = a.current.Requested(ctx); err != nil {
			return err
		}
	}
	canonicalize := a.Target.Kind.Strategy.Canonicalize
	if a.verb == Post || canonicalize == nil || a.Target.Version.ToStorage != nil {
		a.obj = m.Update(ctx, live, a.obj, a.Options.FieldManager, a.p.Now())
		return nil
	}
	// The fields are those of the normalized object. The object itself is normalized only after it was validated.
	normalized := a.obj.DeepCopyObject().(registry.Object)
	canonicalize(normalized)
	a.obj.SetManagedFields(m.Update(ctx, live, normalized, a.Options.FieldManager, a.p.Now()).GetManagedFields())
	return nil
}

// convert brings the object to the version that is stored.
func (a *attempt) convert(ctx context.Context) (err error) {
	a.obj, err = a.Target.Resource.Decoder.ToStorage(ctx, a.obj, a.Target.Version)
	return err
}

// mutate calls mutating admission. The fields that it sets have no owner. managedFields that it makes invalid are reset.
func (a *attempt) mutate(ctx context.Context) error {
	if a.admission == nil || a.Admitted {
		return nil
	}
	old := a.shown(a.old())
	if a.Before != nil {
		old = a.Before()
	}
	attributes := a.attributes(ctx, a.obj, old)
	before := managedfields.EntriesOf(a.obj)
	err := a.admission.Mutate(ctx, attributes)
	// Webhooks and policies replace the object. Plug-ins that change it in place do not touch its managedFields.
	if err == nil && attributes.Object != a.obj {
		managedfields.CheckChanged(ctx, before, attributes.Object)
	}
	a.obj = attributes.Object
	return err
}

// merge replaces the Scale in obj by the new state of its parent.
func (a *attempt) merge(ctx context.Context) (err error) {
	a.obj, err = a.Merge(ctx, a.current, a.obj)
	return err
}

// complete sets fields that a client cannot set: the namespace and, for a new object, the UID, the time of
// creation and a generated name. It returns an error if the object names another namespace than the request.
func (a *attempt) complete(context.Context) error {
	if a.creates() {
		return a.completeNew()
	}
	return inNamespace(a.Target.Kind, a.obj, a.Namespace)
}

func (a *attempt) completeNew() error {
	obj := a.obj
	if a.verb != Create {
		// A resourceVersion on an object that a PUT creates is ignored, as kube-apiserver does.
		obj.SetResourceVersion("")
	}
	if a.verb != Create && obj.GetName() != "" && obj.GetName() != a.Name {
		// Only admission can have changed it. kube-apiserver stores an object under the key of another name.
		return kerrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), a.Name))
	}
	if err := inNamespace(a.Target.Kind, a.obj, a.Namespace); err != nil {
		return err
	}
	wipeServerFields(obj)
	obj.SetCreationTimestamp(metav1.Time{Time: a.Target.Resource.Now()}.Rfc3339Copy())
	obj.SetUID(uuid.NewUUID())
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(generatedName(obj.GetGenerateName()))
	}
	return nil
}

// allocate gives the object values that no other object may have, such as the cluster IPs and node ports of a
// Service. The side writes that reserve them are committed with the object.
func (a *attempt) allocate(ctx context.Context) (err error) {
	allocator := a.Target.Resource.Writer.Allocator()
	if allocator == nil || a.Subresource != nil {
		return nil
	}
	a.sideWrites, err = allocator.Allocate(
		ctx, registry.Allocation{Object: a.obj, Old: a.old(), DryRun: a.Options.DryRun, Conflicts: a.conflicts},
	)
	return err
}

// normalize changes a valid object to the form in which it is stored, and sends the warnings of its kind.
func (a *attempt) normalize(ctx context.Context) error {
	// Only valid objects are normalized, so that an error shows the value as the client wrote it.
	if canonicalize := a.Target.Kind.Strategy.Canonicalize; canonicalize != nil {
		canonicalize(a.obj)
	}
	if a.verb == Amend {
		return nil
	}
	for _, text := range a.change().warnings() {
		request.Warn(ctx, text)
	}
	if !a.creates() {
		managedfields.KeepTimes(a.old(), a.obj)
	}
	return nil
}

// admit calls validating admission for the object that is going to be stored. An update that creates a missing object
// needs the permission to create it.
func (a *attempt) admit(ctx context.Context) error {
	if a.creates() && a.verb != Create {
		if err := takesNew(a.Target, a.obj.GetName()); err != nil {
			return err
		}
		if err := a.p.mayCreate(ctx, a.Target.GVR, a.Namespace, a.Name); err != nil {
			return err
		}
	}
	if a.verb == Delete {
		return a.admitDeletion(ctx)
	}
	return a.askAdmission(ctx, a.shown(a.obj), a.shown(a.old()))
}

// askAdmission calls validating admission for an object, or for the body of a Post.
func (a *attempt) askAdmission(ctx context.Context, obj, old registry.Object) error {
	if a.admission == nil || a.Admitted {
		return nil
	}
	a.approved = a.attributes(ctx, obj, old)
	return a.admission.Validate(ctx, a.approved)
}

// mayCreate returns an error if the user of a PUT or PATCH of a missing object may not create it. The server itself may;
// its writes have no user.
func (p *Pipeline) mayCreate(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) error {
	user := request.UserFrom(ctx)
	if p.Authorizer == nil || user == nil {
		return nil
	}
	create := &request.Info{
		Verb: "create", Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, AsksResource: true,
		Namespace: namespace, Name: name,
	}
	if sent := request.InfoFrom(ctx); sent != nil {
		create.Path = sent.Path
	}
	return authz.Check(ctx, p.Authorizer, authz.Attributes{User: user, Info: create})
}

// commit stores the object, or removes it.
func (a *attempt) commit(ctx context.Context) (err error) {
	how := registry.Commit{
		DryRun: a.Options.DryRun, SideWrites: a.charges.with(a.sideWrites, a.Target.Resource.Store()), Manager: a.Options.FieldManager,
	}
	switch {
	case a.verb == Delete:
		a.result.Result, err = a.commitDeletion(ctx)
	case a.creates():
		// kube-apiserver's store refuses a resourceVersion, but not in a dry run; one that is not a number is dropped.
		if rv, err := strconv.ParseUint(a.obj.GetResourceVersion(), 10, 64); err == nil && rv != 0 && !how.DryRun {
			return apierr.New(http.StatusInternalServerError, "", "resourceVersion should not be set on objects to be created")
		}
		a.result.Result, err = a.insert(ctx, how)
		a.result.Created = a.verb != Create
	// An update that removes the last finalizer of an object whose deletion has begun completes the deletion.
	case a.verb != Amend && deletableNow(a.Target.Kind, a.obj):
		a.result.Result, err = a.removeAfterUpdate(ctx)
	default:
		a.result.Result, err = a.Target.Resource.Writer.Replace(ctx, a.found, a.obj, how)
	}
	return err
}

// insert stores a new object, unless the definition of its resource is being deleted. The deletion of the objects of the
// definition waits until insert returns. So no object can appear after the definition was removed.
func (a *attempt) insert(ctx context.Context, how registry.Commit) (registry.Result, error) {
	if !a.Target.Creates.Enter() {
		return registry.Result{}, terminating(a.Target, a.obj.GetName())
	}
	defer a.Target.Creates.Leave()
	return a.Target.Resource.Writer.Insert(ctx, a.obj, how)
}

// act executes a Post. It calls validating admission once the body itself is valid.
func (a *attempt) act(ctx context.Context) (err error) {
	a.result.Answer, err = a.Act(ctx, access{a.p}, registry.CreateRequest{
		Namespace: a.Namespace, Name: a.Name, Body: a.obj, DryRun: a.Options.DryRun, FieldManager: a.Options.FieldManager,
		Admit: a.askAdmission,
	})
	return err
}
