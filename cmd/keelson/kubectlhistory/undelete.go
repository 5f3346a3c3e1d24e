package kubectlhistory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// writeFlags are the flags of the commands that change objects.
type writeFlags struct {
	asOf, selector string
	yes            bool
}

func newUndelete(o Options) *cobra.Command {
	var f writeFlags
	c := &cobra.Command{
		Use: "undelete TYPE NAME... | TYPES -l SELECTOR", Short: "Create deleted objects again",
		Long: "Undelete creates objects as they were. With the type namespace it creates the\n" +
			"namespace and what was in it. It prints what it would do; --yes does it. The\n" +
			"server checks each object before (a dry run), also against admission and quota.\n\n" +
			"An object that comes back has a new UID and no status. Owner references lead to\n" +
			"the new owners. What a controller makes again is left out.",
		Example: "  kubectl history undelete configmap settings\n" +
			"  kubectl history undelete secrets -l app=shop --as-of 30m --yes\n" +
			"  kubectl history undelete namespace shop --yes",
	}
	c = newCommand(o, c, f.check, func(s *session, args []string) error { return s.undelete(args, &f) })
	addWriteFlags(c, &f)
	c.Flags().Lookup("as-of").Usage += "; by default just before the deletion"
	return c
}

func addWriteFlags(c *cobra.Command, f *writeFlags) {
	c.Flags().StringVar(&f.asOf, "as-of", "", asOfUsage)
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "the objects that had these labels then")
	c.Flags().BoolVar(&f.yes, "yes", false, "do it; otherwise nothing is changed")
}

// check returns what is wrong with the arguments and flags.
func (f *writeFlags) check(args []string) error {
	kind, names, err := splitArgs(args)
	switch {
	case err != nil:
		return err
	case f.selector != "" && len(names) > 0:
		return errors.New("--selector and names cannot be used together")
	case f.selector == "" && len(names) == 0:
		return fmt.Errorf("name the objects: %s NAME, or choose them with --selector", kind)
	case f.selector != "" && f.asOf == "":
		return errNoAsOf
	}
	return nil
}

// undelete creates objects again.
func (s *session) undelete(args []string, f *writeFlags) error {
	kind, names, err := splitArgs(args)
	if err != nil {
		return err
	}
	rep := &report{s: s, yes: f.yes, verb: "created"}
	var objects []candidate
	named := false
	if f.selector != "" {
		objects, err = s.selectedThen(kind, f)
		if slices.ContainsFunc(objects, func(c candidate) bool { return c.resource.isNamespace() }) {
			err = errOneNamespace
		}
	} else {
		objects, named, err = s.namesThen(rep, kind, names, f.asOf)
	}
	if err != nil {
		return err
	}
	live, err := s.liveOwners(objects)
	if err != nil {
		return err
	}
	s.carryOut(rep, planned(objects, live, named), live)
	return rep.end()
}

// errOneNamespace is the error of a command that names no namespace, or several.
var errOneNamespace = errors.New("name one namespace: it is undeleted with what was in it")

// namesThen returns named objects as they were. A namespace is returned with what was in it; then named is false.
func (s *session) namesThen(rep *report, kind string, names []string, asOf string) (objects []candidate, named bool, err error) {
	r, err := s.catalog.find(kind)
	switch {
	case err != nil:
		return nil, false, err
	case !r.isNamespace():
		objects, err = s.objectsThen(rep, r, names, asOf)
		return objects, true, err
	case len(names) > 1:
		return nil, false, errOneNamespace
	}
	objects, err = s.namespaceThen(rep, r, names[0], asOf)
	return objects, false, err
}

// objectsThen returns named objects as they were. Objects that exist are reported and left out.
func (s *session) objectsThen(rep *report, r resource, names []string, asOf string) (out []candidate, err error) {
	for _, name := range names {
		at := asOf
		if at == "" {
			if at, err = s.beforeDeletion(r, s.namespaceOf(r), name); err != nil {
				return nil, err
			}
			if at == "" {
				rep.skipped(r, name, existsReason)
				continue
			}
		}
		o, err := s.client.get(s.ctx, r, s.namespaceOf(r), name, at)
		if err != nil {
			return nil, explain(err, at)
		}
		out = append(out, candidate{r, o})
	}
	return out, nil
}

// existsReason is why an object is not created.
const existsReason = "an object of this name exists"

// beforeDeletion returns the resourceVersion just before the last deletion of an object was asked for, "" if the object exists.
// An object with finalizers, such as a namespace, changes between the request and its end.
func (s *session) beforeDeletion(r resource, namespace, name string) (string, error) {
	var uid, revision string
	exists := false
	err := s.client.changes(s.ctx, r, namespace, name, withObjects(), func(c *change) (bool, error) {
		o, err := c.object()
		if err != nil {
			return false, err
		}
		deleting := o != nil && o.GetDeletionTimestamp() != nil
		switch {
		case revision == "" && (c.Type == history.Deleted || c.Type == history.Expired):
			if uid = string(c.UID); uid == "" {
				return false, fmt.Errorf("what %s was before its deletion is not kept any more", r.objectName(name))
			}
		case revision == "":
			exists = true
			return false, nil
		case string(c.UID) != uid || !deleting:
			return false, nil
		}
		revision = c.ResourceVersion
		return true, nil
	})
	if err != nil || exists {
		return "", err
	}
	number, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return "", fmt.Errorf("the history of %s has the resourceVersion %q", r.objectName(name), revision)
	}
	return strconv.FormatInt(number-1, 10), nil
}

// namespaceThen returns a namespace and what was in it. All resources are read at one resourceVersion.
func (s *session) namespaceThen(rep *report, r resource, name, asOf string) (out []candidate, err error) {
	s.namespace = name
	if asOf == "" {
		if asOf, err = s.beforeDeletion(r, "", name); err != nil {
			return nil, err
		}
		if asOf == "" {
			return nil, fmt.Errorf("the namespace %s exists; to bring back what is missing in it, say as of when with --as-of", name)
		}
	}
	o, err := s.client.get(s.ctx, r, "", name, asOf)
	if err != nil {
		return nil, explain(err, asOf)
	}
	out = []candidate{{r, o}}
	elsewhere := s.extensionGroups()
	reader := *s.client
	reader.warn = nil // what is deprecated concerns the user if there are objects of it: then their creation warns
	for _, r := range s.catalog.preferred() {
		if !r.Namespaced || !r.can("list", "get", "create") || slices.Contains(elsewhere, r.Group+"/"+r.Version) {
			continue
		}
		if reason := neverUndeleted(r); reason != "" {
			if r.Group != "events.k8s.io" { // the same objects as the events of the core group
				rep.skippedAll(r, reason)
			}
			continue
		}
		objects, revision, err := reader.list(s.ctx, r, name, "", asOf)
		if err != nil {
			if s.ctx.Err() != nil {
				return nil, err
			}
			rep.refusedAll(r, err)
			continue
		}
		if revision != "" {
			asOf = revision
		}
		for _, o := range objects {
			out = append(out, candidate{r, o})
		}
	}
	return out, nil
}

// extensionGroups returns the versions of API groups (group/version) that extension API servers have, whose past is not kept. It
// is empty if the user may not read APIServices.
func (s *session) extensionGroups() (out []string) {
	r, found := s.catalog.ofKind("apiregistration.k8s.io/v1", "APIService")
	if !found {
		return nil
	}
	services, _, err := s.client.list(s.ctx, r, "", "", "")
	if err != nil {
		return nil
	}
	for _, a := range services {
		if service, found, _ := unstructured.NestedMap(a.Object, "spec", "service"); found && service != nil {
			group, _, _ := unstructured.NestedString(a.Object, "spec", "group")
			version, _, _ := unstructured.NestedString(a.Object, "spec", "version")
			out = append(out, group+"/"+version)
		}
	}
	return out
}

// liveOwners returns the UIDs of now of the owners that exist, by the UIDs in owner references: an owner that is still there has
// the same one, an owner that was undeleted names it in its annotation.
func (s *session) liveOwners(objects []candidate) (map[string]string, error) {
	live, asked := map[string]string{}, map[string]bool{}
	for i := range objects {
		o := objects[i].object
		for _, owner := range o.GetOwnerReferences() {
			uid := string(owner.UID)
			if asked[uid] {
				continue
			}
			asked[uid] = true
			r, found := s.catalog.ofKind(owner.APIVersion, owner.Kind)
			if !found {
				continue
			}
			now, err := s.client.getOrNil(s.ctx, r, o.GetNamespace(), owner.Name, "")
			switch {
			case err != nil && !kerrors.IsForbidden(err):
				return nil, err
			case now != nil && string(now.GetUID()) == uid, now != nil && now.GetAnnotations()[undeletedUID] == uid:
				live[uid] = string(now.GetUID())
			}
		}
	}
	return live, nil
}

// carryOut creates objects in the order of the steps and reports each. uids has the UIDs of now of owners.
func (s *session) carryOut(rep *report, steps []step, uids map[string]string) {
	failed := map[string]string{} // the owners that were refused, by their UID of then
	pending := map[string]bool{}  // the namespaces that do not exist in a dry run
	serviceAccounts := false      // the default ServiceAccount has been waited for
	for i := range steps {
		st := &steps[i]
		name := st.object.GetName()
		if s.ctx.Err() != nil {
			rep.refused(st.resource, name, s.ctx.Err())
			continue
		}
		if st.skip != "" {
			rep.skipped(st.resource, name, st.skip)
			continue
		}
		if owner := refusedOwner(st.object, failed); owner != "" {
			failed[st.uid()] = name
			rep.skipped(st.resource, name, "its owner or namespace "+owner+" was refused")
			continue
		}
		o, notes := clean(st.resource, st.object)
		if st.resource.Group == "" && st.resource.Kind == "PersistentVolumeClaim" {
			if note := keepVolume(o, s.volumeOf(o)); note != "" {
				notes = append(notes, note)
			}
		}
		for _, gone := range rewire(o, uids) {
			notes = append(notes, "without its owner "+gone+", which is gone")
		}
		if pending[o.GetNamespace()] {
			uids[st.uid()] = st.uid() // of what it owns, nothing is sent either
			rep.done(st.resource, name, notes)
			continue
		}
		if st.resource.Group == "" && st.resource.Kind == "Pod" && rep.yes && !serviceAccounts {
			s.awaitServiceAccount(o.GetNamespace())
			serviceAccounts = true
		}
		isNamespace := st.resource.isNamespace()
		if isNamespace && s.exists(st.resource, name) { // perhaps for a user who may not create namespaces
			rep.skipped(st.resource, name, existsReason)
			continue
		}
		created, note, err := s.create(st.resource, o, rep.yes)
		if note != "" {
			notes = append(notes, note)
		}
		switch {
		case kerrors.IsAlreadyExists(err):
			rep.skipped(st.resource, name, existsReason)
		case err != nil:
			rep.refused(st.resource, name, err)
			if failed[st.uid()] = name; isNamespace {
				failed[name] = name
			}
		default:
			uids[st.uid()] = string(created.GetUID())
			if rep.yes {
				if note := s.restoreManagers(st.resource, st.object, created, uids); note != "" {
					notes = append(notes, note)
				}
			}
			pending[name] = isNamespace && !rep.yes || pending[name]
			rep.done(st.resource, name, notes)
		}
	}
	if len(pending) > 0 && pending[s.namespace] {
		rep.hint = "The server has not checked what is in the namespace, because it does not exist yet."
	}
}

// exists reports whether an object without a namespace exists, as far as the user may know.
func (s *session) exists(r resource, name string) bool {
	_, err := s.client.get(s.ctx, r, "", name, "")
	return err == nil
}

// refusedOwner returns the name of an owner, or of the namespace, of an object that was refused.
func refusedOwner(o *unstructured.Unstructured, failed map[string]string) string {
	for _, owner := range o.GetOwnerReferences() {
		if name := failed[string(owner.UID)]; name != "" {
			return name
		}
	}
	if o.GetNamespace() == "" {
		return ""
	}
	return failed[o.GetNamespace()]
}

// create creates an object in the first of its variants that the server accepts in a dry run, and stores it if yes is set.
func (s *session) create(r resource, o *unstructured.Unstructured, yes bool) (created *unstructured.Unstructured, note string, err error) {
	for _, v := range variants(r, o) {
		created, err = s.client.write(s.ctx, http.MethodPost, r, v.object, true)
		if err == nil && yes {
			created, err = s.client.write(s.ctx, http.MethodPost, r, v.object, false)
		}
		if err == nil || !kerrors.IsInvalid(err) {
			return created, v.note, err
		}
	}
	return nil, "", err
}

// volumeOf returns the volume of a claim, nil if it does not exist or cannot be read.
func (s *session) volumeOf(claim *unstructured.Unstructured) *unstructured.Unstructured {
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
	r, found := s.catalog.ofKind("v1", "PersistentVolume")
	if name == "" || !found {
		return nil
	}
	volume, err := s.client.get(s.ctx, r, "", name, "")
	if err != nil {
		return nil
	}
	return volume
}

// awaitServiceAccount waits for the default ServiceAccount of a new namespace, without which Pods are refused, for ten seconds at
// most.
func (s *session) awaitServiceAccount(namespace string) {
	r, found := s.catalog.ofKind("v1", "ServiceAccount")
	if !found {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	for {
		if _, err := s.client.get(ctx, r, namespace, "default", ""); !kerrors.IsNotFound(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// report prints a line for each object and counts them.
type report struct {
	s                      *session
	yes                    bool
	verb                   string // what is done with objects: created, reverted
	changed, left, refusal int
	hint                   string // is printed at the end
}

// line prints a line about an object.
func (r *report) line(name, text string) { r.s.printf("%s %s\n", printable(name), printable(text)) }

// done reports that an object was changed, or would be.
func (r *report) done(res resource, name string, notes []string) {
	r.changed++
	text := r.verb
	if !r.yes {
		text = "would be " + r.verb
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	r.line(res.objectName(name), text)
}

func (r *report) skipped(res resource, name, reason string) {
	r.left++
	r.line(res.objectName(name), "skipped: "+reason)
}

func (r *report) skippedAll(res resource, reason string) { r.line(res.String(), "skipped: "+reason) }

func (r *report) refused(res resource, name string, err error) {
	r.refusal++
	r.line(res.objectName(name), "refused: "+err.Error())
}

// refusedAll reports that the objects of a resource could not be read.
func (r *report) refusedAll(res resource, err error) {
	r.refusal++
	r.line(res.String(), "refused: "+err.Error())
}

// end prints how many objects there were, and returns an error if some were refused.
func (r *report) end() error {
	text := fmt.Sprintf("%d %s, %d skipped, %d refused.", r.changed, r.verb, r.left, r.refusal)
	if !r.yes {
		text = fmt.Sprintf("%d would be %s, %d skipped, %d refused. Nothing was changed; --yes does it.",
			r.changed, r.verb, r.left, r.refusal)
	}
	r.s.warnf("%s", text)
	if r.hint != "" {
		r.s.warnf("%s", r.hint)
	}
	if r.refusal > 0 {
		return fmt.Errorf("%d refused", r.refusal)
	}
	return nil
}
