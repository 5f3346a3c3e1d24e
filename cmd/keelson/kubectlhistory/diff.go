package kubectlhistory

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spf13/cobra"
)

func newDiff(o Options) *cobra.Command {
	var asOf, to string
	c := &cobra.Command{
		Use: "diff TYPE NAME --as-of TIME [--to TIME]", Short: "Show how an object differs from what it was",
		Long: "Diff compares an object as it was with the object of now, or of another time,\n" +
			"as YAML without managedFields. The values of Secrets are not shown.",
		Example: "  kubectl history diff deployment web --as-of 2h\n" +
			"  kubectl history diff configmap/settings --as-of 48213 --to 48290",
	}
	c = newCommand(o, c, func(args []string) error {
		if _, _, err := splitOne(args); err != nil {
			return err
		}
		if asOf == "" {
			return errNoAsOf
		}
		return nil
	}, func(s *session, args []string) error { return s.diff(args, asOf, to) })
	c.Flags().StringVar(&asOf, "as-of", "", asOfUsage)
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
