package undelete

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

var typeMeta = metav1.TypeMeta{Kind: Kind, APIVersion: history.APIVersion}

func listMeta(revision int64) metav1.ListMeta {
	if revision == 0 {
		return metav1.ListMeta{}
	}
	return metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)}
}

// Answer is a Plan whose objects are read when it is written. Close has to be called.
type Answer struct{ s *search }

// Close gives back what the answer keeps open.
func (a *Answer) Close() { a.s.resources.close() }

// Write writes the answer as JSON, one step after the other. For an object that cannot be read the step has Skip set.
func (a *Answer) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	head, err := json.Marshal(struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`
		Left            []Left `json:"left"`
	}{typeMeta, listMeta(a.s.revision), a.s.left})
	if err != nil {
		return err
	}
	_, _ = out.Write(head[:len(head)-1]) // Flush returns the first error
	_, _ = out.WriteString(`,"steps":[`)
	for i := range a.s.steps {
		if err := a.s.ctx.Err(); err != nil {
			return err
		}
		a.s.prepare(a.s.steps[i:])
		body, err := json.Marshal(a.s.describe(&a.s.steps[i]))
		if err != nil {
			return err
		}
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.Write(append(body, '\n'))
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

func stepOf(c *candidate) Step {
	return Step{
		Group: c.Group, Version: c.Version, Resource: c.Resource.Resource, Kind: c.served.GVK.Kind, Namespace: c.namespace, Name: c.name,
		UID: c.uid, ContentAsOf: c.contentAsOf,
	}
}

// batchSize is the number of objects that a conversion webhook converts at a time, and batchBytes is about their
// largest size together.
const batchSize, batchBytes = 100, 1 << 20

// prepare reads and converts the objects of the next steps of a resource together, if they have to be converted. If that fails
// for an object, (*search).then reads it again and returns the error.
func (s *search) prepare(steps []step) {
	first := &steps[0]
	if first.skip != "" || s.batch[first.candidate] != nil || !first.served.Resource.Renderer.IsPrepared() || first.failed >= maxFailed {
		return
	}
	s.batch = map[*candidate]*cache.Object{}
	var objects []*cache.Object
	bytes := 0
	for i := range steps[:min(batchSize, len(steps))] {
		c := steps[i].candidate
		if c.resource != first.resource || bytes > batchBytes {
			break
		}
		if steps[i].skip != "" {
			continue
		}
		if o, err := s.stored(c); err == nil {
			s.batch[c], objects, bytes = o, append(objects, o), bytes+len(o.Data)
		}
	}
	if n := registry.DecodedMemory * bytes; n > s.decoding {
		if s.budget.hold(n-s.decoding) != nil {
			s.batch = nil
			return
		}
		s.decoding = n
	}
	_ = first.served.Resource.Renderer.Prepare(s.ctx, objects) // then returns the error of each object
}

// then returns the object of a candidate as it was at the revision that comes back.
func (s *search) then(c *candidate) (*unstructured.Unstructured, error) {
	converts := c.served.Resource.Renderer.IsPrepared()
	if converts && c.failed >= maxFailed {
		return nil, fmt.Errorf("the conversion of %s fails", c.GroupResource())
	}
	o := s.batch[c]
	if o == nil {
		var err error
		if o, err = s.stored(c); err != nil {
			return nil, err
		}
	}
	out, err := s.decode(c.resource, o, (*registry.Renderer).ItemJSONOnce)
	if err != nil && converts {
		c.failed++
	}
	return out, err
}

func (s *search) stored(c *candidate) (*cache.Object, error) {
	view, err := c.served.Resource.Past.View(s.ctx, c.at, c.namespace)
	if err != nil {
		return nil, history.NotKept(err)
	}
	o, found, err := view.Get(s.ctx, c.served.Resource.Key(c.namespace, c.name))
	if err != nil {
		return nil, history.NotKept(err)
	}
	if !found {
		return nil, kerrors.NewNotFound(c.GroupResource(), c.name)
	}
	return o, nil
}

// describe returns a step with the object that is sent.
func (s *search) describe(st *step) Step {
	out := stepOf(st.candidate)
	if out.Skip = st.skip; st.skip != "" {
		out.ContentAsOf = ""
		return out
	}
	was, err := s.then(st.candidate)
	if err != nil {
		return s.refuse(out, err)
	}
	o, notes := cleaned(st.resource, was)
	if st.is("", "PersistentVolumeClaim") {
		note, err := keepVolume(o, s.volume)
		if err != nil {
			return s.refuse(out, err)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	find := s.ownerUID(st.namespace)
	for _, gone := range rewire(o, find) {
		notes = append(notes, "without its owner "+gone+", which is gone")
	}
	for _, owner := range o.GetOwnerReferences() {
		same := func(then metav1.OwnerReference) bool { return then.UID == owner.UID }
		if s.creates(owner.UID) == nil && !slices.ContainsFunc(st.owners, same) {
			notes = append(notes, fmt.Sprintf("with the owner %s %s of now, which says that it is the one that was there", owner.Kind, owner.Name))
		}
	}
	out.Object, out.Notes, out.Alternatives = o.Object, notes, alternatives(st.resource, o)
	out.ManagedFields = managersOf(was, o, s.own(st.resource), find)
	return out
}

// refuse returns a step for an object that cannot be read. The objects that it owns come back without it.
func (s *search) refuse(out Step, err error) Step {
	if s.creates(out.UID) != nil {
		delete(s.created, out.UID)
	}
	out.Skip, out.Refused, out.ContentAsOf = "it cannot be read: "+err.Error(), true, ""
	return out
}

// ownerUID returns a function that returns the current UID of an owner of an object in a namespace. For an owner that a step creates it
// returns the old UID, and "" for one that does not come back.
func (s *search) ownerUID(namespace string) func(metav1.OwnerReference) types.UID {
	return func(owner metav1.OwnerReference) types.UID {
		if c := s.creates(owner.UID); c != nil && c.isOwner(namespace, &owner) {
			return owner.UID
		}
		return s.live[keyOf(namespace, &owner)]
	}
}

// creates returns the object that had a UID if a step creates it.
func (s *search) creates(uid types.UID) *candidate {
	if s.created == nil {
		s.created = map[types.UID]*candidate{}
		for _, st := range s.steps {
			if st.skip == "" {
				s.created[st.uid] = st.candidate
			}
		}
	}
	return s.created[uid]
}

// volume returns the claim that a PersistentVolume is for. The volume is one that a step creates, or one that exists.
// volume returns nil if there is no such volume, or if it is for no claim.
func (s *search) volume(name string) (*claimRef, error) {
	if c := s.claims[name]; c != nil && s.creates(c.uid) != nil {
		return c.claim, nil
	}
	r := s.resources.find(volumes)
	if r == nil {
		return nil, nil
	}
	o, err := s.now(r.Resource, "", name, (*registry.Renderer).WrittenJSON)
	if err != nil || o == nil {
		return nil, err
	}
	return claimOf(o), nil
}

// equal reports whether an update would change nothing.
func equal(a, b *unstructured.Unstructured) bool { return reflect.DeepEqual(a.Object, b.Object) }
