package kubectlhistory

import (
	"fmt"
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

// blame prints which change gave each field of an object its value.
func (s *session) blame(args []string, output string) error {
	r, name, err := s.oneOf(args)
	if err != nil {
		return err
	}
	b, err := s.findBlame(r, name)
	if err != nil {
		return err
	}
	secret := r.Group == "" && r.Kind == "Secret"
	if output != "" {
		type field struct {
			Field string          `json:"field"`
			Value any             `json:"value,omitempty"`
			By    *history.Change `json:"change,omitempty"`
		}
		fields := []field{}
		for _, f := range b.fields {
			if secret && isSecret(f.Path) {
				f.Value = nil
			}
			fields = append(fields, field{f.Path, f.Value, f.change})
		}
		return s.print(map[string]any{"fields": fields}, output)
	}
	var rows [][]string
	for _, f := range b.fields {
		row := []string{"<older>", "<older>", "<older>"}
		if f.change != nil {
			row = []string{timeOf(f.change), userOf(f.change), requestOf(f.change)}
		}
		value := valueText(f.Value)
		if secret && isSecret(f.Path) {
			value = "***"
		}
		rows = append(rows, append(row, f.Path, value))
	}
	return writeTable(s.Out, []string{"TIME", "USER", "REQUEST", "FIELD", "VALUE"}, rows)
}

// isSecret reports whether a field of a Secret has a value that is not shown.
func isSecret(path string) bool {
	return strings.HasPrefix(path, ".data") || strings.Contains(path, "last-applied-configuration")
}

// findBlame reads the history of an object as far as it is needed.
func (s *session) findBlame(r resource, name string) (b *blame, err error) {
	uid := ""
	err = s.client.changes(s.ctx, r, s.namespaceOf(r), name, withObjects(), func(c *change) (bool, error) {
		o, err := c.object()
		if err != nil {
			return false, err
		}
		known := c.Change
		known.Object = nil
		switch {
		case b == nil && (c.Type == history.Deleted || c.Type == history.Expired):
			return false, fmt.Errorf("%s is gone; `kubectl history log` shows its changes", r.objectName(name))
		case b == nil && o == nil:
			return false, fmt.Errorf("%s cannot be read: %s", r.objectName(name), c.Unreadable)
		case b == nil:
			b, uid = newBlame(o.Object, &known), string(c.UID)
			return b.open > 0, nil
		case o == nil || string(c.UID) != uid:
			return false, nil // what was before is not known
		}
		return b.add(o.Object, &known), nil
	})
	if err == nil && b == nil {
		err = fmt.Errorf("the history has no change of %s", r.objectName(name))
	}
	return b, err
}
