package kubectlhistory

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/history"
)

func newLog(o Options) *cobra.Command {
	var limit int
	var uid, output string
	c := &cobra.Command{
		Use: "log TYPE NAME", Short: "Show who changed an object, the newest change first",
		Long: "Log lists the changes of an object, also of one that is gone: when, which\n" +
			"revision came of it, who, by which request, and which fields changed. The time\n" +
			"and the revision are values for --as-of.",
		Example: "  kubectl history log deployment web\n" +
			"  kubectl history log secret/database --limit 5 -o yaml",
	}
	c = newCommand(o, c, func(args []string) error {
		if limit < 0 {
			return errors.New("--limit must not be negative")
		}
		if _, _, err := splitOne(args); err != nil {
			return err
		}
		return checkOutput(output, "json", "yaml")
	}, func(s *session, args []string) error { return s.log(args, limit, uid, output) })
	c.Flags().IntVar(&limit, "limit", 50, "how many changes are shown; 0 shows all")
	c.Flags().StringVar(&uid, "uid", "", "only changes of the object with this UID, if several had the name")
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml, or nothing for a table")
	return c
}

// log prints the changes of an object. limit 0 is all.
func (s *session) log(args []string, limit int, uid, output string) error {
	r, name, err := s.oneOf(args)
	if err != nil {
		return err
	}
	list := history.ObjectHistory{
		TypeMeta: metav1.TypeMeta{Kind: "ObjectHistory", APIVersion: history.APIVersion}, Items: []history.Change{},
	}
	more := false
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if uid != "" {
		query.Set("uid", uid)
	} else if limit > 0 {
		query.Set("limit", strconv.Itoa(min(limit+1, pageSize)))
	}
	err = s.client.changes(s.ctx, r, s.namespaceOf(r), name, query, func(c *history.Change) (bool, error) {
		more = limit > 0 && len(list.Items) == limit
		if !more {
			list.Items = append(list.Items, *c)
		}
		return !more, nil
	})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("the history has no change of %s with the UID %s", r.objectName(name), uid)
	}
	if output == "" {
		err = writeTable(s.Out, logHeader(list.Items), logRows(list.Items))
	} else {
		err = s.print(list, output)
	}
	if more && err == nil {
		s.warnf("There are older changes; --limit 0 shows all.")
	}
	return err
}

// severalUIDs reports whether the changes belong to several objects, which had the same name one after the other.
func severalUIDs(changes []history.Change) bool {
	for i := range changes {
		if changes[i].UID != changes[0].UID {
			return true
		}
	}
	return false
}

func logHeader(changes []history.Change) []string {
	header := []string{"TIME", "REVISION", "TYPE", "USER", "REQUEST", "CHANGED"}
	if severalUIDs(changes) {
		header = append(header, "UID")
	}
	return header
}

// logRows returns the rows of the table of changes.
func logRows(changes []history.Change) (rows [][]string) {
	several := severalUIDs(changes)
	for i := range changes {
		c := &changes[i]
		row := []string{timeOf(c), c.ResourceVersion, string(c.Type), userOf(c), requestOf(c), changedOf(c)}
		if several {
			row = append(row, string(c.UID))
		}
		rows = append(rows, row)
	}
	return rows
}

// timeFormat has milliseconds, like the times of the server, so that a printed time is a valid value for --as-of.
// The time of a change without a user comes from managedFields, in seconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

func timeOf(c *history.Change) string {
	switch {
	case c.Time == nil:
		return "<unknown>"
	case c.User == "" && c.Time.Nanosecond() == 0:
		return c.Time.UTC().Format(time.RFC3339)
	}
	return c.Time.UTC().Format(timeFormat)
}

func userOf(c *history.Change) string {
	switch {
	case c.User == "" && c.FieldManager != "":
		return "<unknown> (" + c.FieldManager + ")"
	case c.User == "":
		return "<unknown>"
	case c.Impersonator != "":
		return c.User + " (by " + c.Impersonator + ")"
	}
	return c.User
}

func requestOf(c *history.Change) string {
	return strings.TrimSpace(c.Verb + " " + c.Subresource)
}

// changedOf returns at most six of the changed paths, and the server's reason for the change.
func changedOf(c *history.Change) string { return changedUpTo(c, 6) }

// changedUpTo works as changedOf, with at most most paths.
func changedUpTo(c *history.Change, most int) string {
	shown := c.Changed[:min(most, len(c.Changed))]
	out := strings.Join(shown, ",")
	if more := len(c.Changed) - len(shown) + c.MoreChanged; more > 0 {
		out = strings.TrimSpace(fmt.Sprintf("%s and %d more", out, more))
	}
	parts := []string{}
	for _, part := range []string{out, c.Reason, c.Unreadable} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}
