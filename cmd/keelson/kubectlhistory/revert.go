package kubectlhistory

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
)

func newRevert(o Options) *cobra.Command {
	var f writeFlags
	c := &cobra.Command{
		Use: "revert TYPE NAME... | TYPES -l SELECTOR", Short: "Give objects the content that they had",
		Long: "Revert updates objects that exist with what they were: the content, labels and\n" +
			"annotations of then. Status and the other metadata stay. It shows the\n" +
			"difference; --yes does it. The server checks each object before (a dry run). An\n" +
			"object that changes in the meantime is refused.",
		Example: "  kubectl history revert deployment web --as-of 20m\n" +
			"  kubectl history revert deployments,configmaps -l app=shop --as-of 48213 --yes",
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
	var then []candidate
	if f.selector != "" {
		then, err = s.selectedThen(kind, f)
	} else {
		then, err = s.namedThen(kind, names, f.asOf)
	}
	if err != nil {
		return err
	}
	rep := &report{s: s, yes: f.yes, verb: "reverted"}
	for i := range then {
		s.revertOne(rep, &then[i], f)
	}
	return rep.end()
}

// selectedThen returns the objects of one or more resources that had labels. All are read at one resourceVersion.
func (s *session) selectedThen(kinds string, f *writeFlags) (out []candidate, err error) {
	resources, err := s.catalog.findAll(kinds)
	if err != nil {
		return nil, err
	}
	asOf := f.asOf
	var asked []string
	for _, r := range resources {
		asked = append(asked, r.String())
		found, revision, err := s.client.list(s.ctx, r, s.namespaceOf(r), f.selector, asOf)
		if err != nil {
			return nil, explain(err, f.asOf)
		}
		if revision != "" {
			asOf = revision
		}
		for _, o := range found {
			out = append(out, candidate{r, o})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there were no %s with these labels as of %s", strings.Join(asked, ", "), f.asOf)
	}
	return out, nil
}

// namedThen returns objects as they were.
func (s *session) namedThen(kind string, names []string, asOf string) (out []candidate, err error) {
	r, err := s.catalog.find(kind)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		o, err := s.client.get(s.ctx, r, s.namespaceOf(r), name, asOf)
		if err != nil {
			return nil, explain(err, asOf)
		}
		out = append(out, candidate{r, o})
	}
	return out, nil
}

// revertOne updates an object with what it was.
func (s *session) revertOne(rep *report, c *candidate, f *writeFlags) {
	r, then := c.resource, c.object
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
	var notes []string
	if err == nil && f.yes {
		if now, err = s.client.write(s.ctx, http.MethodPut, r, target, false); err == nil {
			if note := s.restoreManagers(r, then, now, nil); note != "" {
				notes = append(notes, note)
			}
		}
	}
	if err != nil {
		rep.refused(r, name, err)
		return
	}
	rep.done(r, name, notes)
}
