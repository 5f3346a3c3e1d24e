package blockers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/webhooks"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// defaultObjects and defaultBytes bound what one answer examines of other objects.
	defaultObjects, defaultBytes = 20_000, 64 << 20
	// maxNamed is the largest number of objects of one resource that an answer names.
	maxNamed = 20
	// maxItems is the largest number of items of one type in an answer. An object may have any number of finalizers and conditions.
	maxItems = 200
	// maxVersions is the number of versions of the object in which an answer looks for the change that began its
	// deletion.
	maxVersions = 100
)

// Finder finds what objects wait for. Its method may be called concurrently.
type Finder struct {
	// Client reads other objects.
	Client *client.Client
	// Resources lists the resources whose objects may matter: discovery.Handler.Preferred.
	Resources func() (resources []discovery.Resource, stale []schema.GroupVersion)
	// Kinds are the built-in kinds, which know who removes their finalizers.
	Kinds []*registry.Kind
	// Webhooks returns the failing webhooks that are called for a write. A nil function means that there are none.
	Webhooks func(context.Context, *admission.Attributes) ([]webhooks.Failing, error)
	// Authorizer decides what users may see; nil allows everything.
	Authorizer authz.Authorizer
	Now        func() time.Time
	// MaxObjects limits the number of other objects that an answer examines, and MaxBytes the size of their stored
	// values. 0 means 20,000 and 64 MiB. If a limit is reached, NotExamined says so.
	MaxObjects, MaxBytes int
}

// search is the work for one answer.
type search struct {
	*Finder
	access
	info   *request.Info
	served *registry.Served
	stored *cache.Object
	obj    registry.Object
	// status is the status of the object as JSON, nil if it has none.
	status json.RawMessage
	out    *ObjectBlockers
	// added are the changes that added the finalizers, as far as the history shows them.
	added map[string]*history.Change
	items map[Type]int // the number of items of a type, also of those that are left out
	// objects and bytes count what was examined. skipped has the resources whose objects were not all examined.
	objects, bytes int
	skipped        []string
	reads          int // objects that were read for their managedFields
	// failing are the webhooks that fail, in the order in which they were found.
	failing []*failingWebhook
}

// Find returns what an object waits for. info is the request, whose user decides what the answer names; stored is the object, which
// can be read (see registry.Reader.Readable). It fails if the object cannot be decoded, and when ctx ends.
func (f *Finder) Find(
	ctx context.Context, info *request.Info, served *registry.Served, stored *cache.Object,
) (*ObjectBlockers, error) {
	s := &search{
		Finder: f, info: info, served: served, stored: stored, added: map[string]*history.Change{}, items: map[Type]int{},
		access: access{authorizer: f.Authorizer, info: info, known: map[permission]bool{}},
		out:    &ObjectBlockers{TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}, Items: []Blocker{}},
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	s.readHistory(ctx)
	if s.out.DeletionTimestamp != nil {
		s.findDeletion(ctx)
	}
	s.webhooksOf(ctx, s.served.GVR, s.served.GVK, s.obj, "the object", s.subresources()...)
	s.addWebhooks(ctx)
	s.addGeneration()
	s.addConditions()
	s.addNotExamined()
	return s.out, ctx.Err()
}

// load decodes the object. If the conversion to the version of the request fails, that is a blocker too: everybody who reads the
// object in this version gets the error.
func (s *search) load(ctx context.Context) (err error) {
	if s.obj, err = s.served.Resource.Decoder.DecodeAs(ctx, s.stored, s.served.Version); err != nil {
		failed := err
		if s.obj, err = s.served.Resource.Decoder.DecodeStored(s.stored); err != nil {
			return err
		}
		s.add(Blocker{
			Type: Webhook, Name: s.served.GroupResource().String(), Owner: "the conversion webhook of " + s.served.GroupResource().String(),
			Message: "The object cannot be converted to the version " + s.served.Version.Name + ": " + shorten(failed.Error()),
		})
	}
	text, err := json.Marshal(s.obj)
	if err != nil {
		return err
	}
	var parts struct{ Status json.RawMessage }
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	s.status, s.out.DeletionTimestamp = parts.Status, s.obj.GetDeletionTimestamp()
	gvr := s.served.GVR
	s.out.Object = Object{
		Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: s.obj.GetNamespace(), Name: s.obj.GetName(),
		UID: s.obj.GetUID(),
	}
	return nil
}

// findDeletion adds what the deletion of the object waits for.
func (s *search) findDeletion(ctx context.Context) {
	s.addFinalizers()
	switch o := s.obj.(type) {
	case *corev1.Pod:
		s.addPod(ctx, o)
	case *corev1.PersistentVolumeClaim:
		s.addUsers(ctx, o)
	case *corev1.PersistentVolume:
		s.addClaim(ctx, o)
	case *corev1.Namespace:
		s.addAPIServices(ctx)
		s.addContent(ctx, o.Name)
	case *apiextensionsv1.CustomResourceDefinition:
		s.addInstances(ctx, o)
	}
	s.addDependents(ctx)
}

// add adds an item, unless there are maxItems of its type.
func (s *search) add(b Blocker) {
	if s.items[b.Type]++; s.items[b.Type] <= maxItems {
		s.out.Items = append(s.out.Items, b)
	}
}

func (s *search) notExamined(format string, args ...any) {
	s.out.NotExamined = append(s.out.NotExamined, fmt.Sprintf(format, args...))
}

// addNotExamined says which limits were reached.
func (s *search) addNotExamined() {
	if n := len(s.skipped); n > 0 {
		const most = 10
		names := strings.Join(s.skipped[:min(n, most)], ", ")
		if n > most {
			names += fmt.Sprintf(" and %d more resources", n-most)
		}
		s.notExamined("An answer examines at most %d objects and %d bytes. Not all were examined of: %s.", s.maxObjects(), s.maxBytes(), names)
	}
	for _, t := range slices.Sorted(maps.Keys(s.items)) {
		if n := s.items[t]; n > maxItems {
			s.notExamined("An answer has at most %d items of a type. %d more of the type %s are left out.", maxItems, n-maxItems, t)
		}
	}
	if s.limited {
		s.notExamined("An answer checks at most %d permissions. What needs further ones is treated as not permitted.", maxChecks)
	}
}

func (f *Finder) maxObjects() int {
	if f.MaxObjects > 0 {
		return f.MaxObjects
	}
	return defaultObjects
}

func (f *Finder) maxBytes() int {
	if f.MaxBytes > 0 {
		return f.MaxBytes
	}
	return defaultBytes
}

// deletionBegan returns when the deletion was asked for.
func (s *search) deletionBegan() *metav1.Time {
	if d := s.out.Deletion; d != nil && d.Time != nil {
		return &metav1.Time{Time: d.Time.Time}
	}
	began := *s.out.DeletionTimestamp
	if grace := s.obj.GetDeletionGracePeriodSeconds(); grace != nil {
		began.Time = began.Add(-time.Duration(*grace) * time.Second)
	}
	return &began
}

// readHistory finds the last change of the object, the change that began its deletion, and the changes that added
// its finalizers. If there is no history or the user may not read it, it takes the last change from managedFields
// and leaves the others empty.
func (s *search) readHistory(ctx context.Context) {
	for _, entry := range s.obj.GetManagedFields() {
		c := changeOfManager(&entry)
		if last := s.out.LastChange; last == nil || c.Time != nil && (last.Time == nil || !c.Time.Before(last.Time)) {
			s.out.LastChange = c
		}
	}
	if !s.served.Resource.Past.KeepsAuthors() || !s.may(ctx, "readhistory", s.served.GVR, s.info.Namespace, s.info.Name) {
		return
	}
	limit := 1
	if s.out.DeletionTimestamp != nil {
		limit = maxVersions
	}
	changes, _, err := s.served.Resource.Past.Changes(ctx, s.info.Namespace, s.info.Name, 0, limit)
	if err != nil {
		s.notExamined("The history cannot be read: %s.", shorten(err.Error()))
	}
	for i := range changes {
		c := &changes[i]
		if c.Object == nil || c.CreateRevision != changes[0].CreateRevision {
			return // it is of an earlier object of the same name, or cannot be read
		}
		after, err := s.served.Resource.Decoder.Lifecycle(c.Object)
		if err != nil {
			return
		}
		before, known := registry.Lifecycle{}, c.CreateRevision == c.Revision // nothing was before the creation
		if i+1 < len(changes) && changes[i+1].Object != nil && !known {
			before, err = s.served.Resource.Decoder.Lifecycle(changes[i+1].Object)
			known = err == nil
		}
		s.note(c, i == 0, known, before, after)
	}
}

// note records one change if it is the last one, began the deletion or added a finalizer. The caller passes the
// newest change first. known means that the state before the change is known.
func (s *search) note(c *registry.PastChange, newest, known bool, before, after registry.Lifecycle) {
	if c.Time.IsZero() {
		return // who made it is not known
	}
	change := new(history.Made(c))
	if newest {
		s.out.LastChange = change
	}
	if !known {
		return
	}
	if after.Deleting && !before.Deleting && s.out.Deletion == nil {
		s.out.Deletion = change
	}
	if slices.Equal(before.Finalizers, after.Finalizers) {
		return
	}
	had := make(map[string]bool, len(before.Finalizers))
	for _, name := range before.Finalizers {
		had[name] = true
	}
	for _, name := range after.Finalizers {
		if s.added[name] == nil && !had[name] {
			s.added[name] = change
		}
	}
}
