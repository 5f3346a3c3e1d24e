package kubectlhistory

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// getFlags are the flags of the command get.
type getFlags struct {
	asOf, output, selector string
	allNamespaces          bool
}

func newGet(o Options) *cobra.Command {
	var f getFlags
	c := &cobra.Command{
		Use: "get TYPE [NAME...] --as-of TIME", Short: "Show objects as they were",
		Long: "Get shows objects as they were at a time, like kubectl get.",
		Example: "  kubectl history get pods --as-of 90m\n" +
			"  kubectl history get deployment/web --as-of 2026-11-27T14:00:00Z -o yaml\n" +
			"  kubectl history get configmaps -A -l app=shop --as-of 48213",
	}
	c = newCommand(o, c, f.check, func(s *session, args []string) error { return s.get(args, &f) })
	c.Flags().StringVar(&f.asOf, "as-of", "", asOfUsage)
	c.Flags().StringVarP(&f.output, "output", "o", "", "wide, yaml, json or name, or nothing for a table")
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "only objects with these labels")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "objects of all namespaces")
	return c
}

func (f *getFlags) check(args []string) error {
	_, names, err := splitArgs(args)
	switch {
	case err != nil:
		return err
	case f.asOf == "":
		return errNoAsOf
	case len(names) > 0 && f.selector != "":
		return errors.New("--selector and names cannot be used together")
	case len(names) > 0 && f.allNamespaces:
		return errors.New("--all-namespaces and names cannot be used together")
	}
	return checkOutput(f.output, "wide", "yaml", "json", "name")
}

// get prints objects as of a time.
func (s *session) get(args []string, f *getFlags) error {
	kind, names, err := splitArgs(args)
	if err != nil {
		return err
	}
	r, err := s.catalog.find(kind)
	if err != nil {
		return err
	}
	namespace := s.namespaceOf(r)
	if f.allNamespaces {
		namespace = ""
	}
	if f.output == "" || f.output == "wide" {
		return s.getTable(r, namespace, names, f)
	}
	var objects []*unstructured.Unstructured
	if len(names) == 0 {
		objects, _, err = s.client.list(s.ctx, r, namespace, f.selector, f.asOf)
	}
	for _, name := range names {
		o, missing := s.client.get(s.ctx, r, namespace, name, f.asOf)
		if missing != nil {
			err = missing
			break
		}
		objects = append(objects, o)
	}
	if err != nil {
		return explain(err, f.asOf)
	}
	for i := range objects {
		objects[i] = without(objects[i], "managedFields")
	}
	if f.output == "name" {
		for _, o := range objects {
			s.printf("%s\n", printable(r.objectName(o.GetName())))
		}
		return nil
	}
	var answer any
	if len(names) == 1 {
		answer = objects[0].Object
	} else {
		items := []any{}
		for _, o := range objects {
			items = append(items, o.Object)
		}
		answer = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	}
	return s.print(answer, f.output)
}

// print writes a value as yaml or json.
func (s *session) print(value any, format string) error {
	if format == "json" {
		e := json.NewEncoder(s.Out)
		e.SetIndent("", "    ")
		e.SetEscapeHTML(false)
		return e.Encode(value)
	}
	out, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(out)
	return err
}

// getTable prints objects as a table, with the columns that the server sends.
func (s *session) getTable(r resource, namespace string, names []string, f *getFlags) error {
	table := &metav1.Table{}
	add := func(body []byte) error {
		page := metav1.Table{}
		if err := json.Unmarshal(body, &page); err != nil || page.Kind != "Table" {
			return fmt.Errorf("the server answers no table of %s; use --output yaml", r)
		}
		if len(table.ColumnDefinitions) == 0 {
			table.ColumnDefinitions = page.ColumnDefinitions
		}
		table.Rows = append(table.Rows, page.Rows...)
		return nil
	}
	var err error
	if len(names) == 0 {
		err = s.client.pages(s.ctx, r, namespace, f.selector, f.asOf, mediaTable, add)
	}
	for _, name := range names {
		var body []byte
		body, err = s.client.request(s.ctx, http.MethodGet, r.path(namespace, name), asOfQuery(f.asOf), mediaTable, nil)
		if err == nil {
			err = add(body)
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return explain(err, f.asOf)
	}
	if len(table.Rows) == 0 {
		where := ""
		if r.Namespaced && namespace != "" {
			where = " in namespace " + namespace
		}
		s.warnf("There were no %s%s as of %s.", r, where, f.asOf)
		return nil
	}
	header, rows, err := tableCells(table, f.output == "wide", r.Namespaced && namespace == "")
	if err != nil {
		return err
	}
	return writeTable(s.Out, header, rows)
}

// tableCells returns the columns and rows of a table as kubectl shows them. Columns with a priority above 0 are
// only included if wide is true. namespaces adds the namespace as the first column.
func tableCells(table *metav1.Table, wide, namespaces bool) (header []string, rows [][]string, err error) {
	shown := func(i int) bool {
		return i < len(table.ColumnDefinitions) && (wide || table.ColumnDefinitions[i].Priority == 0)
	}
	if namespaces {
		header = append(header, "NAMESPACE")
	}
	for i, column := range table.ColumnDefinitions {
		if shown(i) {
			header = append(header, strings.ToUpper(column.Name))
		}
	}
	for i := range table.Rows {
		var row []string
		if namespaces {
			var o metav1.PartialObjectMetadata
			if err := json.Unmarshal(table.Rows[i].Object.Raw, &o); err != nil {
				return nil, nil, err
			}
			row = append(row, o.Namespace)
		}
		for j, cell := range table.Rows[i].Cells {
			switch {
			case !shown(j):
			case cell == nil:
				row = append(row, "")
			default:
				row = append(row, fmt.Sprint(cell))
			}
		}
		rows = append(rows, row)
	}
	return header, rows, nil
}
