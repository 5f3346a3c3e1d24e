package kubectlhistory

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/blockers"
	"github.com/keelson-dev/keelson/internal/api/history"
)

func newWhy(o Options) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "why TYPE NAME", Short: "Show why an object is stuck",
		Long: "Why shows what the deletion of an object waits for: finalizers and who removes\n" +
			"them, dependents, what is left in a namespace, webhooks and APIServices that\n" +
			"fail. Of any object it shows the conditions that do not hold.",
		Example: "  kubectl history why namespace shop\n" +
			"  kubectl history why deployment/web -o yaml",
	}
	c = newCommand(o, c, func(args []string) error {
		if _, _, err := splitOne(args); err != nil {
			return err
		}
		return checkOutput(output, "json", "yaml")
	}, func(s *session, args []string) error { return s.why(args, output) })
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml, or nothing for text")
	return c
}

// why prints the reasons why an object waits.
func (s *session) why(args []string, output string) error {
	r, name, err := s.oneOf(args)
	if err != nil {
		return err
	}
	body, err := s.client.request(s.ctx, http.MethodGet, r.path(s.namespaceOf(r), name, "blockers"), nil, mediaJSON, nil)
	if err != nil {
		return err
	}
	var b blockers.ObjectBlockers
	if err := json.Unmarshal(body, &b); err != nil || b.Kind != blockers.Kind {
		return fmt.Errorf("the server does not say what %s waits for", r.objectName(name))
	}
	if output != "" {
		return s.print(b, output)
	}
	s.printf("%s", whyText(r.objectName(name), &b))
	return nil
}

// whyText returns the answer as text. Lines with text from other programs are indented.
func whyText(name string, b *blockers.ObjectBlockers) string {
	var out strings.Builder
	line := func(indent, format string, args ...any) {
		out.WriteString(indent + printable(fmt.Sprintf(format, args...)) + "\n")
	}
	switch {
	case b.DeletionTimestamp == nil:
		line("", "%s is not being deleted.", name)
	case b.Deletion != nil && b.Deletion.Time != nil:
		line("", "%s is being deleted since %s, asked for by %s.", name, b.Deletion.Time.UTC().Format(time.RFC3339), byOf(b.Deletion))
	default:
		line("", "%s is being deleted; its deletionTimestamp is %s.", name, b.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
	if b.LastChange != nil {
		line("", "Last change: %s.", changeText(b.LastChange))
	}
	out.WriteString("\n")
	if len(b.Items) == 0 {
		line("", "The server knows of nothing that it waits for.")
	}
	const detail = "    "
	for i := range b.Items {
		item := &b.Items[i]
		line("", "%s %s%s", item.Type, item.Name, sinceOf(item.Since))
		line(detail, "%s", item.Message)
		if item.Change != nil {
			line(detail, "Added: %s.", changeText(item.Change))
		}
		for _, o := range item.Objects {
			line(detail, "- %s", objectText(&o))
		}
		if more := item.Count - len(item.Objects); more > 0 && len(item.Objects) > 0 {
			line(detail, "- and %d more", more)
		}
	}
	for _, text := range b.NotExamined {
		line("", "%s", text)
	}
	return out.String()
}

func sinceOf(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return ", since " + t.UTC().Format(time.RFC3339)
}

// changeText returns the time, the author and the verb of a change as text.
func changeText(c *history.Change) string {
	at := "at an unknown time"
	if c.Time != nil {
		at = c.Time.UTC().Format(timeFormat)
	}
	return at + " by " + byOf(c)
}

// byOf returns the author and the verb of a change. The author is the user if known, or else the field manager.
func byOf(c *history.Change) string {
	by := c.User
	switch {
	case by == "":
		by = "the field manager " + c.FieldManager
	case c.Impersonator != "":
		by += " (by " + c.Impersonator + ")"
	}
	return by + " (" + strings.TrimSpace(c.Verb+" "+c.Subresource) + ")"
}

// objectText returns the name of an object, and the reasons why it waits itself.
func objectText(o *blockers.Object) string {
	text := o.Name
	if o.Namespace != "" {
		text = o.Namespace + "/" + o.Name
	}
	if o.Deleting {
		text += ", being deleted"
	}
	var waits []string
	for _, f := range o.Finalizers {
		wait := f.Name
		if f.Owner != "" {
			wait += " (" + f.Owner + ")"
		}
		waits = append(waits, wait)
	}
	switch {
	case len(waits) == 0:
	case o.Deleting:
		text += ", waits for " + strings.Join(waits, ", ")
	default:
		text += ", has the finalizers " + strings.Join(waits, ", ")
	}
	return text
}
