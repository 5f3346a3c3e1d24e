package kubectlhistory

import (
	"fmt"
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spf13/cobra"
)

func newRevert(o Options) *cobra.Command {
	var f writeFlags
	c := &cobra.Command{
		Use: "revert TYPE NAME... | TYPE -l SELECTOR", Short: "Give objects the content that they had",
		Long: "Revert updates objects that exist with what they were: the content, labels and\n" +
			"annotations of then. Status and the other metadata stay. It shows the\n" +
			"difference; --yes does it. The server checks each object before (a dry run). An\n" +
			"object that changes in the meantime is refused.",
		Example: "  kubectl history revert deployment web --as-of 20m\n" +
			"  kubectl history revert configmaps -l app=shop --as-of 48213 --yes",
	}
	c = newCommand(o, c, func(args []string) error {
		if err := f.check(args); err != nil {
			return err
		}
		if f.asOf == "" {
			return errNoAsOf
		}
		return nil
	}, func(s *session, args []string) error { return s.revert(args, &f) })
	addWriteFlags(c, &f)
	return c
}

// revert updates objects with what they were.
func (s *session) revert(args []string, f *writeFlags) error {
	kind, names, err := splitArgs(args)
	if err != nil {
		return err
	}
	r, err := s.catalog.find(kind)
	if err != nil {
		return err
	}
	namespace := s.namespaceOf(r)
	var then []*unstructured.Unstructured
	if f.selector != "" {
		then, _, err = s.client.list(s.ctx, r, namespace, f.selector, f.asOf)
		if err == nil && len(then) == 0 {
			return fmt.Errorf("there were no %s with these labels as of %s", r, f.asOf)
		}
	}
	for _, name := range names {
		o, missing := s.client.get(s.ctx, r, namespace, name, f.asOf)
		if missing != nil {
			err = missing
			break
		}
		then = append(then, o)
	}
	if err != nil {
		return explain(err, f.asOf)
	}
	rep := &report{s: s, yes: f.yes, verb: "reverted"}
	for _, o := range then {
		s.revertOne(rep, r, o, f)
	}
	return rep.end()
}

// revertOne updates an object with what it was.
func (s *session) revertOne(rep *report, r resource, then *unstructured.Unstructured, f *writeFlags) {
	name := then.GetName()
	now, err := s.client.getOrNil(s.ctx, r, then.GetNamespace(), name, "")
	switch {
	case err != nil:
		rep.refused(r, name, err)
		return
	case now == nil:
		rep.skipped(r, name, "it is gone; `kubectl history undelete` brings it back")
		return
	case now.GetDeletionTimestamp() != nil:
		rep.skipped(r, name, "it is being deleted")
		return
	}
	target := revertedTo(r, now, then)
	if reflect.DeepEqual(now.Object, target.Object) {
		rep.skipped(r, name, "it is as it was")
		return
	}
	if err := s.printDifference(r, r.objectName(name)+" now", r.objectName(name)+" as of "+f.asOf, now, target); err != nil {
		rep.refused(r, name, err)
		return
	}
	_, err = s.client.write(s.ctx, http.MethodPut, r, target, true)
	if err == nil && f.yes {
		_, err = s.client.write(s.ctx, http.MethodPut, r, target, false)
	}
	if err != nil {
		rep.refused(r, name, err)
		return
	}
	rep.done(r, name, nil)
}
