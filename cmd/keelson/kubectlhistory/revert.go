package kubectlhistory

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spf13/cobra"
)

func newRevert(o Options) *cobra.Command {
	var f writeFlags
	c := &cobra.Command{
		Use: "revert TYPE NAME... | TYPES -l SELECTOR", Short: "Give objects the content that they had",
		Long: "Revert updates objects that exist with what they were: the content, labels and\n" +
			"annotations of then. Status and the other metadata stay. It shows the\n" +
			"difference; --yes does it. The server checks each object before (a dry run). An\n" +
			"object that changes in the meantime is refused. With --from the content is that\n" +
			"of a copy (keelson serve --backup-to), by default at its end.",
		Example: "  kubectl history revert deployment web --as-of 20m\n" +
			"  kubectl history revert deployments,configmaps -l app=shop --as-of 48213 --yes",
	}
	c = newCommand(o, c, func(args []string) error {
		if err := f.check(args); err != nil {
			return err
		}
		if f.asOf == "" && !f.named() {
			return errNoAsOf
		}
		return nil
	}, f.withCopy(func(s *session, args []string) error { return s.revert(args, &f) }))
	addWriteFlags(o, c, &f)
	return c
}

// revert updates objects to earlier states.
func (s *session) revert(args []string, f *writeFlags) error {
	kind, names, err := splitArgs(args)
	if err != nil {
		return err
	}
	found, err := s.toRevert(kind, names, f)
	if err != nil {
		return err
	}
	rep := &report{s: s, yes: f.yes, verb: "reverted"}
	for _, o := range found {
		if err := s.revertOne(rep, o, f); err != nil {
			return err
		}
	}
	return rep.end()
}

// objectThen is an object, and the time of the state to which it is reverted.
type objectThen struct {
	resource
	name, asOf string
}

// toRevert returns the objects in the arguments, or those that had the labels. The latter are read at one
// resourceVersion.
func (s *session) toRevert(kinds string, names []string, f *writeFlags) (out []objectThen, err error) {
	past, err := s.past(f.asOf)
	if err != nil {
		return nil, err
	}
	resources, err := past.findAll(kinds)
	if err != nil {
		return nil, err
	}
	if f.selector == "" {
		for _, name := range names {
			out = append(out, objectThen{resources[0], name, f.asOf})
		}
		return out, nil
	}
	asOf := past.moment()
	var asked []string
	for _, r := range resources {
		asked = append(asked, r.String())
		objects, revision, err := past.client.list(s.ctx, r, s.namespaceOf(r), f.selector, asOf)
		if err != nil {
			return nil, explain(err, past.said(f.asOf))
		}
		if revision != "" {
			asOf = revision
		}
		for _, o := range objects {
			out = append(out, objectThen{r, o.GetName(), asOf})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there were no %s with these labels as of %s", strings.Join(asked, ", "), past.said(f.asOf))
	}
	return out, nil
}

// revertOne updates one object to an earlier state.
func (s *session) revertOne(rep *report, o objectThen, f *writeFlags) error {
	r := o.resource
	plan, err := s.planOf(r, o.name, "revert", o.asOf)
	if err != nil {
		return s.explainObject(err, r, o.name, f.asOf)
	}
	if len(plan.Steps) != 1 {
		return fmt.Errorf("the server does not say how %s gets the content that it had", r.objectName(o.name))
	}
	st := &plan.Steps[0]
	if st.Skip != "" {
		rep.skipped(r, o.name, st.Skip)
		return nil
	}
	past, err := s.past(o.asOf)
	if err != nil {
		return err
	}
	target := &unstructured.Unstructured{Object: st.Object}
	now, err := s.client.get(s.ctx, r, s.namespaceOf(r), o.name, "")
	if err == nil {
		err = s.printDifference(r, r.objectName(o.name)+" now", r.objectName(o.name)+" as of "+past.said(f.asOf), now, target)
	}
	if err == nil {
		_, err = s.client.write(s.ctx, http.MethodPut, r, target, true)
	}
	var notes []string
	if err == nil && f.yes {
		if now, err = s.client.write(s.ctx, http.MethodPut, r, target, false); err == nil {
			if note := s.restoreManagers(r, st.ManagedFields, now); note != "" {
				notes = append(notes, note)
			}
		}
	}
	if err != nil {
		rep.refused(r, o.name, err)
		return nil
	}
	rep.done(r, o.name, notes)
	return nil
}
