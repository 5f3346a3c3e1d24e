package kubectlhistory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/api/undelete"
)

// writeFlags are the flags of the commands that change objects.
type writeFlags struct {
	asOf, selector string
	yes            bool
	copy           Copy // nil if the command has no flags of copies
}

func newUndelete(o Options) *cobra.Command {
	var f writeFlags
	c := &cobra.Command{
		Use: "undelete TYPE NAME... | TYPES -l SELECTOR", Short: "Create deleted objects again",
		Long: "Undelete creates objects as they were. With the type namespace it creates the\n" +
			"namespace and what was in it. It prints what it would do; --yes does it. The\n" +
			"server checks each object before (a dry run), also against admission and quota.\n\n" +
			"An object that comes back has a new UID and no status. Owner references lead to\n" +
			"the new owners. What a controller makes again is left out.\n\n" +
			"With --from the past is that of a copy (keelson serve --backup-to), which may be\n" +
			"of another server. Copies are restored to a temporary directory (TMPDIR).",
		Example: "  kubectl history undelete configmap settings\n" +
			"  kubectl history undelete secrets -l app=shop --as-of 30m --yes\n" +
			"  kubectl history undelete namespace shop --yes\n" +
			"  kubectl history undelete namespace shop --from s3://bucket/cluster",
	}
	c = newCommand(o, c, f.check, f.withCopy(func(s *session, args []string) error { return s.undelete(args, &f) }))
	addWriteFlags(o, c, &f)
	c.Flags().Lookup("as-of").Usage += "; by default just before the deletion"
	return c
}

func addWriteFlags(o Options, c *cobra.Command, f *writeFlags) {
	if o.NewCopy != nil {
		f.copy = o.NewCopy()
		f.copy.AddFlags(c)
	}
	c.Flags().StringVar(&f.asOf, "as-of", "", asOfUsage)
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "the objects that had these labels then")
	c.Flags().BoolVar(&f.yes, "yes", false, "do it; otherwise nothing is changed")
}

// check returns an error if the arguments and flags are invalid.
func (f *writeFlags) check(args []string) error {
	kind, names, err := splitArgs(args)
	switch {
	case err != nil:
		return err
	case f.selector != "" && len(names) > 0:
		return errors.New("--selector and names cannot be used together")
	case f.selector == "" && len(names) == 0:
		return fmt.Errorf("name the objects: %s NAME, or choose them with --selector", kind)
	case f.selector != "" && f.asOf == "" && !f.named():
		return errNoAsOf
	case f.copy != nil:
		return f.copy.Check()
	}
	return nil
}

// undelete creates deleted objects again, by plans that the server makes.
func (s *session) undelete(args []string, f *writeFlags) error {
	kind, names, err := splitArgs(args)
	if err != nil {
		return err
	}
	b := &bringingBack{
		s: s, rep: &report{s: s, yes: f.yes, verb: "created"},
		uids: map[types.UID]types.UID{}, failed: map[string]string{}, pending: map[string]bool{}, defined: map[string]bool{},
	}
	if f.selector != "" {
		err = s.undeleteSelected(b, kind, f)
	} else {
		err = s.undeleteNamed(b, kind, names, f)
	}
	if err != nil {
		return err
	}
	return b.rep.end()
}

// errOneNamespace is the error of an undelete of several namespaces, or of one without a name.
var errOneNamespace = errors.New("name one namespace: it is undeleted with what was in it")

// undeleteSelected creates the deleted objects again that had the given labels.
func (s *session) undeleteSelected(b *bringingBack, kinds string, f *writeFlags) error {
	past, err := s.past(f.asOf)
	if err != nil {
		return err
	}
	resources, err := past.findAll(kinds)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(resources, resource.isNamespace) {
		return errOneNamespace
	}
	var names []string
	for _, r := range resources {
		names = append(names, r.String())
	}
	query := url.Values{
		"asOf": {past.moment()}, "labelSelector": {f.selector}, "resources": {strings.Join(names, ",")}, "fieldManager": {fieldManager},
	}
	path := "/apis/" + history.APIVersion + "/namespaces/" + url.PathEscape(s.namespace) + "/undelete"
	body, err := past.client.request(s.ctx, http.MethodGet, path, query, mediaJSON, nil)
	if kerrors.IsNotFound(err) {
		return past.client.notServed("undelete")
	}
	if err != nil {
		return explain(err, past.said(f.asOf))
	}
	var plan undelete.Plan
	if err := kjson.Unmarshal(body, &plan); err != nil {
		return err
	}
	if len(plan.Steps) == 0 {
		return fmt.Errorf("there were no %s with these labels as of %s", strings.Join(names, ", "), past.said(f.asOf))
	}
	b.carryOut(&plan)
	return nil
}

// undeleteNamed creates the named objects again: a namespace with its content, a definition with its custom
// resources.
func (s *session) undeleteNamed(b *bringingBack, kind string, names []string, f *writeFlags) error {
	past, err := s.past(f.asOf)
	if err != nil {
		return err
	}
	r, err := past.find(kind)
	if err != nil {
		return err
	}
	if r.isNamespace() && len(names) > 1 {
		return errOneNamespace
	}
	if r.isNamespace() {
		s.namespace = names[0]
	}
	for _, name := range names {
		plan, err := s.planOf(r, name, "undelete", f.asOf)
		if err != nil {
			return s.explainObject(err, r, name, f.asOf)
		}
		if r.isNamespace() && f.asOf == "" && s.copy == nil && len(plan.Steps) == 1 && plan.Steps[0].Skip == undelete.Exists {
			return fmt.Errorf("the namespace %s exists; to bring back what is missing in it, say as of when with --as-of", name)
		}
		b.carryOut(plan)
	}
	return nil
}

// planOf requests the plan to create an object again, or to revert it.
func (s *session) planOf(r resource, name, how, asOf string) (*undelete.Plan, error) {
	past, err := s.past(asOf)
	if err != nil {
		return nil, err
	}
	query := asOfQuery(past.asOf)
	if how == "revert" {
		query = asOfQuery(past.moment())
	}
	query.Set("fieldManager", fieldManager)
	plan := &undelete.Plan{}
	return plan, past.client.past(s.ctx, r, s.namespaceOf(r), name, how, query, plan)
}

// bringingBack executes plans.
type bringingBack struct {
	s   *session
	rep *report
	// uids maps the UID of a deleted object in a plan to the UID of the new object, "" if it was not created.
	uids    map[types.UID]types.UID
	failed  map[string]string // refused objects by their old UID, and refused namespaces by their name
	pending map[string]bool   // the namespaces that do not exist in a dry run
	waited  bool              // whether it has waited for the default ServiceAccount
	defined map[string]bool   // the definitions that were created, or would be in a dry run
}

func resourceOf(st *undelete.Step) resource {
	return resource{Group: st.Group, Version: st.Version, Name: st.Resource, Kind: st.Kind, Namespaced: st.Namespace != ""}
}

// carryOut creates objects in the order of the steps and reports each.
func (b *bringingBack) carryOut(plan *undelete.Plan) {
	for _, l := range plan.Left {
		r := resource{Group: l.Group, Name: l.Resource, Kind: l.Resource}
		if l.Refused {
			b.rep.refusedAll(r, errors.New(l.Reason))
		} else {
			b.rep.skippedAll(r, l.Reason)
		}
	}
	for i := range plan.Steps {
		b.step(&plan.Steps[i])
	}
	if b.pending[b.s.namespace] {
		b.rep.hint = cmp.Or(b.rep.hint, "The server has not checked what is in the namespace, because it does not exist yet.")
	}
}

func (b *bringingBack) step(st *undelete.Step) {
	r := resourceOf(st)
	if b.s.ctx.Err() != nil {
		b.rep.refused(r, st.Name, b.s.ctx.Err())
		return
	}
	b.uids[st.UID] = "" // in case it is not created
	switch {
	case st.Refused:
		b.refuse(r, st, errors.New(st.Skip))
		return
	case st.Skip != "":
		b.rep.skipped(r, st.Name, st.Skip)
		return
	}
	o := &unstructured.Unstructured{Object: st.Object}
	if owner := b.refusedOwner(o); owner != "" {
		b.failed[string(st.UID)] = st.Name
		b.rep.skipped(r, st.Name, "its owner or namespace "+owner+" was refused")
		return
	}
	if err := b.served(r); err != nil {
		b.refuse(r, st, err)
		return
	}
	if b.pending[st.Namespace] || b.defined[r.String()] && !b.rep.yes {
		b.uids[st.UID] = st.UID // its dependents keep this UID: nothing is sent for them either
		b.rep.done(r, st.Name, st.Notes)
		return
	}
	if r.Group == "" && r.Kind == "Pod" && b.rep.yes && !b.waited {
		b.s.awaitServiceAccount(st.Namespace)
		b.waited = true
	}
	created, notes, err := b.create(r, st)
	notes = append(slices.Clone(st.Notes), notes...)
	switch {
	case kerrors.IsAlreadyExists(err):
		b.rep.skipped(r, st.Name, undelete.Exists)
		return
	case err != nil:
		b.refuse(r, st, err)
		return
	}
	b.uids[st.UID] = created.GetUID()
	b.defined[st.Name] = r.isDefinition() || b.defined[st.Name]
	if b.rep.yes {
		if note := b.s.restoreManagers(r, b.renamed(o, st.ManagedFields), created); note != "" {
			notes = append(notes, note)
		}
	}
	b.pending[st.Name] = r.isNamespace() && !b.rep.yes || b.pending[st.Name]
	b.content(r, st, notes)
}

// refuse reports an object that cannot be created. Its dependents and its content are then not created either.
func (b *bringingBack) refuse(r resource, st *undelete.Step, err error) {
	b.rep.refused(r, st.Name, err)
	if b.failed[string(st.UID)] = st.Name; r.isNamespace() {
		b.failed[st.Name] = st.Name
	}
}

// content reports a created object, and then creates the objects that are restored with it.
func (b *bringingBack) content(r resource, st *undelete.Step, notes []string) {
	if st.ContentAsOf == "" {
		b.rep.done(r, st.Name, notes)
		return
	}
	if !b.rep.yes {
		b.rep.done(r, st.Name, append(notes, "with its objects, which the server cannot look at before"))
		return
	}
	b.rep.done(r, st.Name, notes)
	plan, err := b.s.planOf(r, st.Name, "undelete", st.ContentAsOf)
	if err != nil {
		b.rep.refused(r, st.Name, err)
		return
	}
	plan.Steps = slices.DeleteFunc(plan.Steps, func(other undelete.Step) bool { return other.UID == st.UID })
	b.carryOut(plan)
}

// refusedOwner returns the name of an owner of the object that was refused, or of its namespace if that was
// refused.
func (b *bringingBack) refusedOwner(o *unstructured.Unstructured) string {
	for _, owner := range o.GetOwnerReferences() {
		if name := b.failed[string(owner.UID)]; name != "" {
			return name
		}
	}
	if o.GetNamespace() == "" {
		return ""
	}
	return b.failed[o.GetNamespace()]
}

// create creates the object of a step. It uses the first form that the server accepts in a dry run. With --yes it
// also stores the object.
func (b *bringingBack) create(r resource, st *undelete.Step) (created *unstructured.Unstructured, notes []string, err error) {
	forms := append([]undelete.Alternative{{Object: st.Object}}, st.Alternatives...)
	for _, form := range forms {
		o := &unstructured.Unstructured{Object: form.Object}
		notes = nil
		for _, gone := range b.rewire(o) {
			notes = append(notes, "without its owner "+gone+", which is gone")
		}
		if form.Note != "" {
			notes = append(notes, form.Note)
		}
		created, err = b.s.client.write(b.s.ctx, http.MethodPost, r, o, true)
		if err == nil && b.rep.yes {
			created, err = b.s.client.write(b.s.ctx, http.MethodPost, r, o, false)
		}
		if err == nil || !kerrors.IsInvalid(err) {
			return created, notes, err
		}
	}
	return nil, nil, err
}

// rewire replaces the UIDs of owners by the UIDs of the new objects. It removes owners that were not created, and
// returns them.
func (b *bringingBack) rewire(o *unstructured.Unstructured) (dropped []string) {
	var kept []metav1.OwnerReference
	for _, owner := range o.GetOwnerReferences() {
		uid, planned := b.uids[owner.UID]
		if planned && uid == "" {
			dropped = append(dropped, owner.Kind+" "+owner.Name)
			continue
		}
		if planned {
			owner.UID = uid
		}
		kept = append(kept, owner)
	}
	if len(dropped) > 0 || len(kept) > 0 {
		o.SetOwnerReferences(kept)
	}
	return dropped
}

// renamed returns managedFields in which the new UIDs of owners replace the old ones.
func (b *bringingBack) renamed(o *unstructured.Unstructured, entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var pairs []string
	for old, uid := range b.uids {
		if uid != "" && uid != old && slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid }) {
			pairs = append(pairs, string(old), string(uid))
		}
	}
	renamed := strings.NewReplacer(pairs...)
	for i := range entries {
		if entries[i].FieldsV1 != nil {
			entries[i].FieldsV1 = metav1.NewFieldsV1(renamed.Replace(entries[i].FieldsV1.GetRawString()))
		}
	}
	return entries
}

// restoreManagers sets the field managers of a restored object to those of its earlier state. It keeps other
// managers that the object has now. If it fails, it returns a note for the report; the object has its content
// anyway.
func (s *session) restoreManagers(r resource, then []metav1.ManagedFieldsEntry, now *unstructured.Unstructured) (note string) {
	const attempts = 5 // other clients may change the object meanwhile
	uid := now.GetUID()
	for attempt := 1; len(then) > 0; attempt++ {
		managers := withOthers(then, now.GetManagedFields())
		if reflect.DeepEqual(managers, now.GetManagedFields()) {
			return ""
		}
		target := now.DeepCopy()
		target.SetManagedFields(managers)
		_, err := s.client.write(s.ctx, http.MethodPut, r, target, false)
		if kerrors.IsConflict(err) && attempt < attempts {
			if now, err = s.client.get(s.ctx, r, now.GetNamespace(), now.GetName(), ""); err == nil && now.GetUID() == uid {
				continue
			}
		}
		if err != nil && !kerrors.IsNotFound(err) {
			return "its fields belong to " + fieldManager + ", not to their managers of then: " + err.Error()
		}
		return ""
	}
	return ""
}

// withOthers returns then, with the entries of now that are not in then. It leaves out the entry of this command.
func withOthers(then, now []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	out := slices.Clone(then)
	for _, e := range now {
		same := func(other metav1.ManagedFieldsEntry) bool {
			return other.Manager == e.Manager && other.APIVersion == e.APIVersion && other.Subresource == e.Subresource &&
				other.Operation == e.Operation
		}
		if !slices.ContainsFunc(then, same) && (e.Manager != fieldManager || e.Subresource != "") {
			out = append(out, e)
		}
	}
	return out
}

// awaitServiceAccount waits at most ten seconds for the default ServiceAccount of a new namespace. Without it,
// Pods are refused.
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

// report prints a line for each object, and counts the objects by result.
type report struct {
	s                      *session
	yes                    bool
	verb                   string // what is done with objects: created, reverted
	changed, left, refusal int
	hint                   string // is printed at the end
}

// line prints a line about an object.
func (r *report) line(name, text string) { r.s.printf("%s %s\n", printable(name), printable(text)) }

// done reports that an object was changed, or would be changed without a dry run.
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
	r.hint = cmp.Or(hintOfCopy(err), r.hint)
	r.line(res.objectName(name), "refused: "+err.Error())
}

// refusedAll reports that no objects of a resource could be read.
func (r *report) refusedAll(res resource, err error) {
	r.refusal++
	r.hint = cmp.Or(hintOfCopy(err), r.hint)
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
