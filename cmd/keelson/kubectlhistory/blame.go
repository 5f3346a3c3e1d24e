package kubectlhistory

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/history"
)

func newBlameCommand(o Options) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "blame TYPE NAME", Short: "Show who gave each field of an object its value",
		Long: "Blame lists the fields of an object with the change that gave each one its\n" +
			"value. <older> stands for changes that the history does not reach. The values of\n" +
			"Secrets are not shown.",
		Example: "  kubectl history blame deployment web\n" +
			"  kubectl history blame configmap/settings -o json",
	}
	c = newCommand(o, c, func(args []string) error {
		if _, _, err := splitOne(args); err != nil {
			return err
		}
		return checkOutput(output, "json", "yaml")
	}, func(s *session, args []string) error { return s.blame(args, output) })
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml, or nothing for a table")
	return c
}

// blame prints, for each field of an object, the change that set its present value.
func (s *session) blame(args []string, output string) error {
	r, name, err := s.oneOf(args)
	if err != nil {
		return err
	}
	var b history.ObjectBlame
	if err := s.client.past(s.ctx, r, s.namespaceOf(r), name, "blame", url.Values{"values": {"true"}}, &b); err != nil {
		return err
	}
	if b.Deletion != nil {
		return fmt.Errorf("%s is gone; `kubectl history log` shows its changes", r.objectName(name))
	}
	changes := map[string]*history.Change{}
	for i := range b.Changes {
		changes[b.Changes[i].ResourceVersion] = &b.Changes[i]
	}
	if r.Group == "" && r.Kind == "Secret" {
		hideValues(b.Fields)
	}
	if b.NotExamined != "" {
		s.warnf("%s", b.NotExamined)
	}
	if output != "" {
		return s.printBlame(b.Fields, changes, output)
	}
	var rows [][]string
	for _, f := range b.Fields {
		row := []string{"<older>", "<older>", "<older>"}
		if c := changes[f.ResourceVersion]; c != nil {
			row = []string{timeOf(c), userOf(c), requestOf(c)}
		}
		value := valueText(f.Value)
		if f.Value == hidden {
			value = "***"
		}
		rows = append(rows, append(row, f.Path, value))
	}
	return writeTable(s.Out, []string{"TIME", "USER", "REQUEST", "FIELD", "VALUE"}, rows)
}

// printBlame prints each field with its change in another format.
func (s *session) printBlame(fields []history.BlamedField, changes map[string]*history.Change, output string) error {
	type field struct {
		Field string          `json:"field"`
		Value any             `json:"value,omitempty"`
		By    *history.Change `json:"change,omitempty"`
	}
	out := []field{}
	for _, f := range fields {
		if f.Value == hidden {
			f.Value = nil
		}
		out = append(out, field{f.Path, f.Value, changes[f.ResourceVersion]})
	}
	return s.print(map[string]any{"fields": out}, output)
}

// hidden replaces values that are not shown.
var hidden any = struct{ hidden bool }{}

// hideValues replaces the values of a Secret.
func hideValues(fields []history.BlamedField) {
	for i := range fields {
		if isSecret(fields[i].Path) {
			fields[i].Value = hidden
		}
	}
}

// isSecret reports whether a field of a Secret has a value that is not shown.
func isSecret(path string) bool {
	return strings.HasPrefix(path, ".data") || strings.Contains(path, "last-applied-configuration")
}
