package kubectlhistory

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/history"
)

func newDiff(o Options) *cobra.Command {
	var asOf, to string
	c := &cobra.Command{
		Use: "diff TYPE NAME [--as-of TIME] [--to TIME]", Short: "Show how an object differs from what it was",
		Long: "Diff compares an object as it was with the object of now, or of another time,\n" +
			"as YAML without managedFields. Without a time it shows the last change of the\n" +
			"object. The values of Secrets are not shown.",
		Example: "  kubectl history diff deployment web\n" +
			"  kubectl history diff deployment web --as-of 2h\n" +
			"  kubectl history diff configmap/settings --as-of 48213 --to 48290",
	}
	c = newCommand(o, c, func(args []string) error {
		if _, _, err := splitOne(args); err != nil {
			return err
		}
		if asOf == "" && to != "" {
			return errors.New("--to needs --as-of: " + asOfUsage)
		}
		return nil
	}, func(s *session, args []string) error {
		if asOf == "" {
			return s.diffLast(args)
		}
		return s.diff(args, asOf, to)
	})
	c.Flags().StringVar(&asOf, "as-of", "", asOfUsage+"; by default just before the last change")
	c.Flags().StringVar(&to, "to", "", "the other time, with the values of --as-of; by default now")
	return c
}

// diff prints how an object changed between two times.
func (s *session) diff(args []string, asOf, to string) error {
	r, name, err := s.oneOf(args)
	if err != nil {
		return err
	}
	var objects [2]*unstructured.Unstructured
	var titles [2]string
	absent := 0
	for i, at := range []string{asOf, to} {
		o, err := s.client.getOrNil(s.ctx, r, s.namespaceOf(r), name, at)
		if err != nil {
			return explain(err, at)
		}
		titles[i] = r.objectName(name) + " now"
		if at != "" {
			titles[i] = r.objectName(name) + " as of " + at
		}
		if o == nil {
			titles[i] += " (does not exist)"
			absent++
			continue
		}
		objects[i] = o
	}
	if absent == len(objects) {
		return fmt.Errorf("%s %q existed at neither time", r, name)
	}
	return s.printDifference(r, titles[0], titles[1], objects[0], objects[1])
}

// diffLast prints the difference that the last change of an object made. It reads the revisions before and after
// that change, so another change at the same time has no effect on the output.
func (s *session) diffLast(args []string) error {
	r, name, err := s.oneOf(args)
	if err != nil {
		return err
	}
	var last, before *history.Change
	err = s.client.changes(s.ctx, r, s.namespaceOf(r), name, url.Values{"limit": {"2"}}, func(c *history.Change) (bool, error) {
		if last == nil {
			last = c
			return true, nil
		}
		before = c
		return false, nil
	})
	switch {
	case err != nil:
		return err
	case last == nil:
		return fmt.Errorf("the history has no change of %s", r.objectName(name))
	case before != nil:
		return s.diff(args, before.ResourceVersion, last.ResourceVersion)
	case last.Type != history.Created:
		return fmt.Errorf("the version of %s before its last change is not kept any more", r.objectName(name))
	}
	created, err := strconv.ParseUint(last.ResourceVersion, 10, 64)
	if err != nil || created == 0 {
		return fmt.Errorf("the server answers the resourceVersion %q", last.ResourceVersion)
	}
	return s.diff(args, strconv.FormatUint(created-1, 10), last.ResourceVersion)
}

// printDifference prints the difference between two versions of an object, without managedFields and the values of Secrets. A
// version may be nil.
func (s *session) printDifference(r resource, fromName, toName string, from, to *unstructured.Unstructured) error {
	from, to = masked(r, from, to)
	before, err := toYAML(from)
	if err != nil {
		return err
	}
	after, err := toYAML(to)
	if err != nil {
		return err
	}
	s.printf("%s", unified(fromName, toName, before, after, s.Color))
	return nil
}
