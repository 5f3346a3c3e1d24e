package undelete

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

const (
	// maxCandidates is the largest number of objects in an answer. candidateBytes is about the memory of each while the answer
	// is made.
	maxCandidates, candidateBytes = 50_000, 500
	// maxLeft is the largest number of entries in Plan.Left.
	maxLeft = 10_000
	// maxFailed is the number of failed conversions after which the conversion webhook of a resource is not called
	// again for an answer.
	maxFailed = 8
	// versionsPage is how many versions of an object are read at a time to find the beginning of its deletion.
	versionsPage = 50
	// firstVersions is how many versions are read at first. Most objects change once or twice between the delete
	// request and their removal.
	firstVersions = 3
)

// Planner finds what can be brought back. Its methods may be called concurrently.
type Planner struct {
	// Resources opens resources, Discovered lists them with the version that clients prefer: discovery.Handler.Preferred. OfKind finds the
	// resource of an owner.
	Resources  *directory.Directory
	Discovered func() (resources []discovery.Resource, stale []schema.GroupVersion)
	OfKind     func(schema.GroupVersionKind) (discovery.Resource, bool)
	Rights     history.Rights
	Now        func() time.Time
	// Elsewhere is set if objects come back to another server. Nil means that they come back to the server that makes the plan.
	Elsewhere Elsewhere
}

// Elsewhere returns an object as it is now on the server to which objects come back, in the version that gvr names. It returns nil if
// there is none, or if the user may not get it.
type Elsewhere func(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error)

// Options are the parameters of a question.
type Options struct {
	// AsOf is a time, a duration before now or a resourceVersion; "" means the time just before the deletion.
	AsOf string
	// Manager is the field manager of the client.
	Manager string
	// Hold counts bytes of memory for the user.
	Hold func(bytes int) error
}

// search is the work for one answer. close has to be called.
type search struct {
	*Planner
	ctx  context.Context
	info *request.Info
	o    Options

	resources *opened
	budget    *budget
	list      []*candidate
	known     map[string]*candidate // by resource and key
	left      []Left
	said      map[Left]bool // what is in left
	live      map[ownerKey]types.UID
	// decoding is the number of bytes that are counted for decoding one object. changes means that the memory for
	// reading the versions of one object is counted.
	decoding int
	changes  bool

	steps   []step
	created map[types.UID]*candidate // what the steps create, by UID; nil before creates is called
	claims  map[string]*candidate    // the PersistentVolumes that were found
	// batch has the objects of the next steps of a resource, converted together.
	batch map[*candidate]*cache.Object
	// revision is the revision at which all objects were read, 0 if there are several.
	revision int64
}

func (p *Planner) begin(ctx context.Context, info *request.Info, o Options) *search {
	return &search{
		Planner: p, ctx: ctx, info: info, o: o, known: map[string]*candidate{},
		resources: &opened{ctx: ctx, directory: p.Resources, discover: p.Discovered, kinds: map[schema.GroupResource]*resource{}},
		budget:    &budget{ctx: ctx, count: o.Hold},
		live:      map[ownerKey]types.UID{}, left: []Left{}, said: map[Left]bool{}, claims: map[string]*candidate{},
	}
}

// ask returns the attributes of a permission check for an object of r; the name "" means all objects.
func (s *search) ask(r *resource, namespace, name string) *request.Info {
	asked := *s.info
	asked.Group, asked.Version, asked.Resource, asked.Subresource, asked.Rest = r.Group, r.Version, r.Resource.Resource, "", ""
	asked.Namespace, asked.Name = namespace, name
	return &asked
}

// allowed returns the first revision at which the user may read the resource, or an error if the user may not read its past.
// verb is get or list.
func (s *search) allowed(r *resource, verb, namespace, name string) (since int64, err error) {
	info := s.ask(r, namespace, name)
	for _, v := range []string{verb, history.ReadHistory} {
		if err := s.Rights.May(s.ctx, v, info, namespace); err != nil {
			return 0, err
		}
	}
	return s.Rights.Since(s.ctx, r.served.Resource, info)
}

// visible returns an error if the user may not read the revision at: it is before since, and the user may not read the history
// of all namespaces.
func (s *search) visible(r *resource, since, at int64, namespace, name string) error {
	if at >= since {
		return nil
	}
	return s.Rights.May(s.ctx, history.ReadHistory, s.ask(r, namespace, name), "")
}

// revisionOf returns the revision that asOf means for a resource.
func (s *search) revisionOf(r *resource, namespace, name string) (int64, error) {
	return history.RevisionOf(s.ctx, r.served, namespace, name, s.o.AsOf, s.Now())
}

// Object returns a plan to bring back one object. A Namespace comes back with its content, and a definition with
// its objects.
func (p *Planner) Object(ctx context.Context, info *request.Info, o Options) (*Answer, error) {
	s := p.begin(ctx, info, o)
	a, err := s.object()
	if err != nil {
		s.resources.close()
		return nil, err
	}
	return a, nil
}

func (s *search) object() (*Answer, error) {
	r, err := s.requested()
	if err != nil {
		return nil, err
	}
	at, err := s.stateOf(r, s.info.Namespace, s.info.Name)
	if err != nil {
		return nil, err
	}
	if at == 0 {
		c := &candidate{resource: r, namespace: s.info.Namespace, name: s.info.Name, exists: true}
		s.list = append(s.list, c)
		return s.answer(true)
	}
	s.revision = at
	c, err := s.addAt(r, s.info.Namespace, s.info.Name, at)
	if err != nil {
		return nil, err
	}
	if err := s.addContent(c); err != nil {
		return nil, err
	}
	return s.answer(!r.isNamespace() && !r.isDefinition())
}

// Deleted returns a plan to bring back the objects of the given deletions. If the namespace of the request does
// not exist, the plan creates it too.
func (p *Planner) Deleted(ctx context.Context, info *request.Info, deletions []history.ObjectChange, o Options) (*Answer, error) {
	s := p.begin(ctx, info, o)
	a, err := s.deleted(deletions)
	if err != nil {
		s.resources.close()
		return nil, err
	}
	return a, nil
}

func (s *search) deleted(deletions []history.ObjectChange) (*Answer, error) {
	if r := s.resources.find(namespaces); r != nil && s.info.Namespace != "" {
		since, err := s.Rights.Registry.NamespaceSince(s.ctx, s.info.Namespace)
		if err != nil {
			return nil, err
		}
		if since == 0 {
			if err := s.addDeleted(r, "", s.info.Namespace); err != nil {
				return nil, err
			}
		}
	}
	asked := map[string]bool{}
	for i := range deletions {
		d := &deletions[i]
		gr := schema.GroupResource{Group: d.Group, Resource: d.Resource}
		key := gr.String() + " " + d.Namespace + "/" + d.Name
		if asked[key] {
			continue
		}
		asked[key] = true
		r := s.resources.find(gr)
		if r == nil {
			s.left = append(s.left, Left{
				Group: d.Group, Resource: d.Resource, Namespace: d.Namespace, Name: d.Name, Reason: "the server does not have its resource any more",
			})
			continue
		}
		if err := s.addDeleted(r, d.Namespace, d.Name); err != nil {
			return nil, err
		}
	}
	return s.answer(false)
}

// addDeleted adds an object as it was before its last deletion, with its content. If it cannot be read, the answer has it in
// Left.
func (s *search) addDeleted(r *resource, namespace, name string) error {
	if reason := never(r); reason != "" {
		s.leave(r, namespace, name, reason, false)
		return nil
	}
	at, err := s.stateOf(r, namespace, name)
	if err == nil && at == 0 {
		s.leave(r, namespace, name, Exists, false)
		return nil
	}
	var c *candidate
	if err == nil {
		c, err = s.addAt(r, namespace, name, at)
	}
	switch {
	case err == nil:
		return s.addContent(c)
	case s.ctx.Err() != nil, kerrors.IsTooManyRequests(err), kerrors.IsBadRequest(err):
		return err
	}
	s.leave(r, namespace, name, err.Error(), true)
	return nil
}

// Listed returns a plan to bring back all objects that existed at a time. names are their resources, such as
// deployments.apps.
func (p *Planner) Listed(
	ctx context.Context, info *request.Info, names []string, selector labels.Selector, o Options,
) (*Answer, error) {
	s := p.begin(ctx, info, o)
	a, err := s.listed(names, selector)
	if err != nil {
		s.resources.close()
		return nil, err
	}
	return a, nil
}

func (s *search) listed(names []string, selector labels.Selector) (*Answer, error) {
	done := map[*resource]bool{}
	for _, name := range names {
		r := s.resources.find(schema.ParseGroupResource(name))
		if r == nil {
			return nil, kerrors.NewBadRequest(fmt.Sprintf(
				"the server has no resource %q; name them with resources, such as deployments.apps,secrets", name))
		}
		if done[r] {
			continue
		}
		done[r] = true
		namespace := s.info.Namespace
		if !r.Namespaced {
			namespace = ""
		}
		if s.revision == 0 { // all objects are read at one revision
			var err error
			if s.revision, err = s.revisionOf(r, namespace, ""); err != nil {
				return nil, err
			}
		}
		if err := s.scan(r, namespace, selector, s.revision); err != nil {
			return nil, err
		}
	}
	return s.answer(false)
}

// requested returns the resource of the request, in its version.
func (s *search) requested() (*resource, error) {
	return s.resources.open(discovery.Resource{GroupVersionResource: schema.GroupVersionResource{
		Group: s.info.Group, Version: s.info.Version, Resource: s.info.Resource,
	}})
}

// stateOf returns the revision of the state of an object that comes back, 0 if the object exists and no time is asked for.
func (s *search) stateOf(r *resource, namespace, name string) (int64, error) {
	since, err := s.allowed(r, "get", namespace, name)
	if err != nil {
		return 0, err
	}
	var at int64
	if s.o.AsOf != "" {
		at, err = s.revisionOf(r, namespace, name)
	} else {
		at, err = s.beforeDeletion(r, namespace, name, since)
	}
	if err == nil && at == 0 && s.Elsewhere != nil {
		at, err = r.served.Resource.Reader.CurrentRevision(s.ctx)
	}
	if err != nil || at == 0 {
		return 0, err
	}
	return at, s.visible(r, since, at, namespace, name)
}

// beforeDeletion returns the revision just before the last deletion of an object was asked for, 0 if the object exists. An object with
// finalizers, such as a namespace, changes between the request and its end.
func (s *search) beforeDeletion(r *resource, namespace, name string, since int64) (int64, error) {
	if !s.changes { // counted once: the versions of one object are read at a time
		if err := s.budget.hold(registry.MemoryOfChanges); err != nil {
			return 0, err
		}
		s.changes = true
	}
	var first, before int64 // the oldest change that is a part of the deletion, and the oldest that was read
	var uid types.UID
	page := firstVersions
	for more := true; more; page = versionsPage {
		var changes []registry.PastChange
		var err error
		if changes, more, err = r.served.Resource.Past.Changes(s.ctx, namespace, name, before, page); err != nil {
			return 0, err
		}
		if first == 0 && (len(changes) == 0 || changes[0].Revision < since) {
			return 0, kerrors.NewNotFound(r.GroupResource(), name)
		}
		for i := range changes {
			c := &changes[i]
			before = c.Revision
			if first == 0 {
				if ends, err := s.endsWith(r, c); err != nil || !ends {
					return 0, err
				}
				first = c.Revision
				continue
			}
			m, err := s.lifecycle(r, c)
			if err != nil || uid != "" && m.UID != uid || !m.Deleting {
				return first - 1, nil
			}
			uid, first = m.UID, c.Revision
		}
	}
	if uid == "" {
		return 0, kerrors.NewResourceExpired("what it was before its deletion is not kept any more")
	}
	return first - 1, nil
}

// endsWith reports whether the newest change of an object is a part of its deletion. Elsewhere the object need not wait for the end of a
// deletion that had begun here.
func (s *search) endsWith(r *resource, newest *registry.PastChange) (bool, error) {
	if newest.Deleted || s.Elsewhere == nil {
		return newest.Deleted, nil
	}
	m, err := s.lifecycle(r, newest)
	return m.Deleting, err
}

// lifecycle returns the metadata of a version, which has the beginning of a deletion.
func (s *search) lifecycle(r *resource, c *registry.PastChange) (registry.Lifecycle, error) {
	if c.Object == nil {
		return registry.Lifecycle{}, fmt.Errorf("%s cannot be read: %w", r.GroupResource(), c.Err)
	}
	return r.served.Resource.Decoder.Lifecycle(c.Object)
}

// addAt adds an object as it was at a revision.
func (s *search) addAt(r *resource, namespace, name string, at int64) (*candidate, error) {
	view, err := r.served.Resource.Past.View(s.ctx, at, namespace)
	if err != nil {
		return nil, history.NotKept(err)
	}
	o, found, err := view.Get(s.ctx, r.served.Resource.Key(namespace, name))
	if err != nil {
		return nil, history.NotKept(err)
	}
	if !found {
		return nil, kerrors.NewNotFound(r.GroupResource(), name)
	}
	return s.add(r, o, at, nil)
}

// add adds the object o, as it was at revision at, to the candidates. It returns nil if selector does not match the
// object; a nil selector matches all objects.
func (s *search) add(r *resource, o *cache.Object, at int64, selector labels.Selector) (*candidate, error) {
	if err := s.budget.examine(); err != nil {
		return nil, err
	}
	was, err := s.decode(r, o, (*registry.Renderer).WrittenJSON)
	if err != nil {
		return nil, err
	}
	if selector != nil && !selector.Matches(labels.Set(was.GetLabels())) {
		return nil, nil
	}
	key := r.GroupResource().String() + " " + o.Key
	if c := s.known[key]; c != nil {
		return c, nil
	}
	if len(s.list) == maxCandidates {
		return nil, kerrors.NewBadRequest(fmt.Sprintf("there are more than %d objects; choose some of them", maxCandidates))
	}
	size := candidateBytes
	for _, owner := range was.GetOwnerReferences() {
		size += candidateBytes + len(owner.Name)
	}
	if err := s.budget.hold(size); err != nil {
		return nil, err
	}
	exists, err := s.exists(r, was.GetNamespace(), was.GetName())
	if err != nil {
		return nil, err
	}
	c := &candidate{
		resource: r, namespace: was.GetNamespace(), name: was.GetName(), uid: was.GetUID(), owners: was.GetOwnerReferences(), at: at,
		out: leftOut(r, was), exists: exists,
	}
	if r.is("", "PersistentVolume") {
		c.claim, s.claims[c.name] = claimOf(was), c
	}
	s.list, s.known[key] = append(s.list, c), c
	return c, nil
}

// exists reports whether there is an object of this name where objects come back.
func (s *search) exists(r *resource, namespace, name string) (bool, error) {
	if s.Elsewhere != nil {
		o, err := s.Elsewhere(s.ctx, r.GroupVersionResource, namespace, name)
		return o != nil, err
	}
	o, err := r.served.Resource.Reader.Latest(s.ctx, namespace, name)
	return o != nil, err
}

// decode returns o as a tree. as chooses the JSON: converted to the version of r, or as it was written. Memory is
// counted for the largest decoded object only.
func (s *search) decode(
	r *resource, o *cache.Object, as text,
) (*unstructured.Unstructured, error) {
	o, err := r.served.Resource.Reader.Readable(s.ctx, o)
	if err != nil {
		return nil, err
	}
	if n := registry.DecodedMemory * len(o.Data); n > s.decoding {
		if err := s.budget.hold(n - s.decoding); err != nil {
			return nil, err
		}
		s.decoding = n
	}
	document, err := as(r.served.Resource.Renderer, s.ctx, o, r.served.Version)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if err := kjson.Unmarshal(document, &out.Object); err != nil {
		return nil, err
	}
	out.SetAPIVersion(r.served.GVK.GroupVersion().String())
	out.SetKind(r.served.GVK.Kind)
	return out, nil
}

// addContent adds what was in a Namespace, or the objects of a definition.
func (s *search) addContent(c *candidate) error {
	switch {
	case c.isNamespace():
		return s.addNamespace(c.name, c.at)
	case c.isDefinition():
		return s.addCustom(c)
	}
	return nil
}

// addNamespace adds the objects that were in a Namespace. Resources that the user may not read are in Left.
func (s *search) addNamespace(name string, at int64) error {
	for _, found := range s.resources.all() {
		if !found.Namespaced || found.Remote || !hasVerbs(found, "list", "get", "create") {
			continue
		}
		r, err := s.resources.open(found)
		if err != nil {
			continue // it has no stored objects, or its definition has just gone
		}
		if reason := never(r); reason != "" {
			if r.Group != "events.k8s.io" { // the same objects as the events of the core group
				s.leave(r, "", "", reason, false)
			}
			continue
		}
		if err := s.scanOrLeave(r, name, at); err != nil {
			return err
		}
	}
	return nil
}

// scanOrLeave is scan. But if the objects cannot be read, or the user may not read them, it adds the resource to Left
// instead of returning the error.
func (s *search) scanOrLeave(r *resource, namespace string, at int64) error {
	err := s.scan(r, namespace, nil, at)
	if err == nil || s.ctx.Err() != nil || kerrors.IsTooManyRequests(err) || kerrors.IsBadRequest(err) {
		return err
	}
	s.leave(r, "", "", err.Error(), true)
	return nil
}

func hasVerbs(r discovery.Resource, verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(r.Verbs, verb) })
}

// leave adds an entry to Left. It does nothing if Left has the same entry already, or has maxLeft entries.
func (s *search) leave(r *resource, namespace, name, reason string, refused bool) {
	l := Left{Group: r.Group, Resource: r.Resource.Resource, Namespace: namespace, Name: name, Reason: reason, Refused: refused}
	if s.said[l] || len(s.said) == maxLeft {
		return
	}
	s.said[l] = true
	_ = s.budget.hold(candidateBytes + len(reason)) // after a refusal, examine and the answer return its error
	s.left = append(s.left, l)
}

// scan adds the objects of a resource in a namespace at a revision. The namespace "" means all namespaces.
func (s *search) scan(r *resource, namespace string, selector labels.Selector, at int64) error {
	since, err := s.allowed(r, "list", namespace, "")
	if err != nil {
		return err
	}
	if err := s.visible(r, since, at, namespace, ""); err != nil {
		return err
	}
	view, err := r.served.Resource.Past.View(s.ctx, at, namespace)
	if err != nil {
		return history.NotKept(err)
	}
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	var failed error
	err = view.Ascend(s.ctx, "", prefix, 0, func(o *cache.Object) bool {
		_, failed = s.add(r, o, at, selector)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return history.NotKept(err)
}

// addCustom adds the objects of a definition if the definition exists. If not, it sets contentAsOf: the client
// asks for the objects after it has created the definition.
func (s *search) addCustom(c *candidate) error {
	if !c.exists {
		c.contentAsOf = strconv.FormatInt(c.at, 10)
		return nil
	}
	o, err := c.served.Resource.Reader.Latest(s.ctx, "", c.name)
	if err != nil {
		return err
	}
	if o == nil {
		// It exists elsewhere. Here it was deleted, so that its objects are not served; they are if the store is read as of before that.
		gr := schema.ParseGroupResource(c.name)
		s.left = append(s.left, Left{Group: gr.Group, Resource: gr.Resource, Refused: true, Reason: fmt.Sprintf(
			"its definition exists, and was deleted before the end of the copy; --as-of %d is before that", c.at)})
		return nil
	}
	definition, err := s.decode(c.resource, o, (*registry.Renderer).WrittenJSON)
	if err != nil {
		return err
	}
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	r := s.resources.await(schema.GroupResource{Group: group, Resource: plural})
	if r == nil {
		s.left = append(s.left, Left{Group: group, Resource: plural, Reason: "it is not served yet: undelete its objects later", Refused: true})
		return s.ctx.Err()
	}
	return s.scanOrLeave(r, "", c.at)
}

// ownerKey identifies an owner by all fields of a reference to it. The UID alone is not enough: the author of an
// object can write any UID into a reference, also the UID of another object. Then a lookup by UID alone would find
// the wrong owner for other objects too.
type ownerKey struct {
	namespace, apiVersion, kind, name string
	uid                               types.UID
}

func keyOf(namespace string, owner *metav1.OwnerReference) ownerKey {
	return ownerKey{namespace, owner.APIVersion, owner.Kind, owner.Name, owner.UID}
}

// findOwners finds the owners that exist, and their current UIDs. An owner that was never deleted has the UID of the
// reference. An owner that came back has that UID in its annotation UndeletedUID.
func (s *search) findOwners() error {
	asked := map[ownerKey]bool{}
	for _, c := range s.list {
		for i := range c.owners {
			owner := &c.owners[i]
			key := keyOf(c.namespace, owner)
			if asked[key] {
				continue
			}
			asked[key] = true
			if err := s.budget.examine(); err != nil {
				return err
			}
			now, err := s.ownerNow(c.namespace, owner)
			if err != nil {
				return err
			}
			if now != nil && (now.GetUID() == owner.UID || now.GetAnnotations()[UndeletedUID] == string(owner.UID)) {
				s.live[key] = now.GetUID()
			}
		}
	}
	return nil
}

// ownerNow returns an object with the name of an owner, nil if there is none or the user may not get it.
func (s *search) ownerNow(namespace string, owner *metav1.OwnerReference) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, nil
	}
	found, ok := s.OfKind(gv.WithKind(owner.Kind))
	if !ok { // perhaps in another version
		for _, r := range s.resources.all() {
			if r.Group == gv.Group && r.Kind == owner.Kind {
				found, ok = r, true
			}
		}
	}
	if !ok || found.Remote {
		return nil, nil
	}
	return s.now(found, namespace, owner.Name, (*registry.Renderer).WrittenJSON)
}

// text is a method of Renderer that returns the JSON of an object: ItemJSONOnce or WrittenJSON.
type text func(*registry.Renderer, context.Context, *cache.Object, *registry.Version) ([]byte, error)

// now returns an object that exists, nil if there is none or the user may not get it.
func (s *search) now(found discovery.Resource, namespace, name string, as text) (*unstructured.Unstructured, error) {
	r, err := s.resources.open(found)
	if err != nil {
		return nil, nil // it has no stored objects
	}
	if !r.served.Kind.Namespaced {
		namespace = ""
	}
	if s.Elsewhere != nil {
		return s.Elsewhere(s.ctx, r.GroupVersionResource, namespace, name)
	}
	switch err := s.Rights.May(s.ctx, "get", s.ask(r, namespace, name), namespace); {
	case kerrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	o, err := r.served.Resource.Reader.Latest(s.ctx, namespace, name)
	if err != nil || o == nil {
		return nil, err
	}
	return s.decode(r, o, as)
}

// answer orders what was found.
func (s *search) answer(named bool) (*Answer, error) {
	if err := s.findOwners(); err != nil {
		return nil, err
	}
	if s.budget.err != nil {
		return nil, s.budget.err
	}
	ordered := &order{live: s.live, named: named, builtIn: func(group string) bool { return s.Resources.HasSource(group, directory.BuiltIn) }}
	s.steps = ordered.run(s.list)
	return &Answer{s}, nil
}

// own returns the entry of managedFields for the annotation that the client writes.
func (s *search) own(r *resource) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: s.o.Manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: r.served.GVK.GroupVersion().String(),
		Time: &metav1.Time{Time: s.Now()}, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + UndeletedUID + `":{}}}}`),
	}
}

// Revert returns a plan to give an existing object its earlier content.
func (p *Planner) Revert(ctx context.Context, info *request.Info, o Options) (*Plan, error) {
	if o.AsOf == "" {
		return nil, kerrors.NewBadRequest("asOf says which state comes back")
	}
	s := p.begin(ctx, info, o)
	defer s.resources.close()
	r, err := s.requested()
	if err != nil {
		return nil, err
	}
	at, err := s.stateOf(r, info.Namespace, info.Name)
	if err != nil {
		return nil, err
	}
	c, err := s.addAt(r, info.Namespace, info.Name, at)
	if err != nil {
		return nil, err
	}
	then, err := s.then(c)
	if err != nil {
		return nil, err
	}
	st := stepOf(c)
	now, err := s.now(r.Resource, info.Namespace, info.Name, (*registry.Renderer).ItemJSONOnce)
	switch {
	case err != nil:
		return nil, err
	case now == nil:
		st.Skip = "it is gone; undelete brings it back"
	case now.GetDeletionTimestamp() != nil:
		st.Skip = "it is being deleted"
	default:
		target := reverted(r, now, then)
		if equal(now, target) {
			st.Skip = "it is as it was"
			break
		}
		st.Object = target.Object
		st.ManagedFields = managersOf(then, target, s.own(r), func(owner metav1.OwnerReference) types.UID { return owner.UID })
	}
	return &Plan{TypeMeta: typeMeta, ListMeta: listMeta(at), Left: []Left{}, Steps: []Step{st}}, nil
}
