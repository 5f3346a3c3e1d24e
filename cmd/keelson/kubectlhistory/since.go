package kubectlhistory

import (
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// sinceFlags are the flags of the command since.
type sinceFlags struct {
	selector, user, kind, output string
	limit                        int
	allNamespaces, watch, newest bool
}

func newSince(o Options) *cobra.Command {
	var f sinceFlags
	c := &cobra.Command{
		Use: "since TIME", Short: "Show what has changed in a namespace, the oldest change first",
		Long: "Since lists the changes of all objects in a namespace, or in all, after TIME:\n" +
			"when, what was done with which object, who, by which request, and which fields\n" +
			"changed. TIME is a time (RFC 3339), a time of day such as 14:00 (of yesterday if\n" +
			"that has not come yet), a duration before now such as 1h30m, or a\n" +
			"resourceVersion; 0 shows all that the server keeps.",
		Example: "  kubectl history since 14:00\n" +
			"  kubectl history since 1h -A --newest-first --limit 20\n" +
			"  kubectl history since 1h -A --by jane --resource deployments\n" +
			"  kubectl history since 10m -n shop -l app=web --watch",
	}
	c = newCommand(o, c, f.check, func(s *session, args []string) error { return s.since(args[0], &f) })
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "only objects with these labels, before or after the change")
	c.Flags().StringVar(&f.user, "by", "", "only changes by this user")
	c.Flags().StringVar(&f.kind, "resource", "", "only objects of this resource type")
	c.Flags().IntVar(&f.limit, "limit", 0, "how many changes are shown, and all of the last transaction; 0 shows all")
	c.Flags().BoolVar(&f.newest, "newest-first", false, "the newest change first")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on with the changes that are made, until an interrupt")
	c.Flags().StringVarP(&f.output, "output", "o", "", "wide, yaml or json, or nothing for a table")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "objects of all namespaces, and those without a namespace")
	return c
}

func (f *sinceFlags) check(args []string) error {
	switch {
	case len(args) != 1:
		return errors.New("say since when, for example 1h: a time (RFC 3339), a time of day, a duration or a resourceVersion")
	case f.limit < 0:
		return errors.New("--limit must not be negative")
	case f.limit > 0 && f.watch:
		return errors.New("--limit and --watch cannot be used together")
	case f.newest && f.watch:
		return errors.New("--newest-first and --watch cannot be used together")
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	return checkOutput(f.output, "wide", "yaml", "json")
}

// since prints the changes after a time.
func (s *session) since(text string, f *sinceFlags) error {
	begin, err := sinceParameter(text, s.Now())
	if err != nil {
		return err
	}
	namespace := s.namespace
	var selected []fields.Selector
	if f.kind != "" {
		r, err := s.catalog.find(f.kind)
		if err != nil {
			return err
		}
		namespace = s.namespaceOf(r)
		selected = append(selected, fields.OneTermEqualSelector("group", r.Group), fields.OneTermEqualSelector("resource", r.Name))
	}
	if f.user != "" {
		selected = append(selected, fields.OneTermEqualSelector("user", f.user))
	}
	if f.allNamespaces {
		namespace = ""
	}
	feed := newFeed(s.client, namespace, begin, f.selector, fields.AndSelectors(selected...).String())
	feed.newest = f.newest
	if f.watch {
		return noFeed(s.follow(feed, s.changePrinter(namespace == "", f.output)))
	}
	list := history.ChangeList{
		TypeMeta: metav1.TypeMeta{Kind: "ChangeList", APIVersion: history.APIVersion}, Items: []history.ObjectChange{},
	}
	show := func(part []history.ObjectChange) error {
		list.Items = append(list.Items, part...)
		return nil
	}
	found := 0
	if f.output == "" || f.output == "wide" {
		show = s.changePrinter(namespace == "", f.output)
	}
	more, err := feed.list(s.ctx, f.limit, func(part []history.ObjectChange) error {
		found += len(part)
		return show(part)
	})
	list.ResourceVersion = feed.reached()
	switch {
	case err != nil:
		return noFeed(err)
	case f.output == "json" || f.output == "yaml":
		err = s.print(list, f.output)
	case found == 0:
		s.warnf("There are no such changes%s since %s.", inNamespace(namespace), text)
	}
	switch {
	case more && err == nil && f.newest:
		s.warnf("There may be earlier changes.")
	case more && err == nil:
		s.warnf("There may be later changes: those since %s.", feed.reached())
	}
	return err
}

// noFeed explains the error of a server without changes: its objects are in etcd, or it is not Keelson.
func noFeed(err error) error {
	if kerrors.IsNotFound(err) {
		return fmt.Errorf("the server has no feed of changes: %w", err)
	}
	return err
}

// timeOfDay matches a time without a date.
var timeOfDay = regexp.MustCompile(`^\d{1,2}:\d\d(:\d\d)?$`)

// sinceParameter returns the value of the parameter since for a time that a user has typed. A time of day means
// today, or yesterday if today's is still in the future. Other values are not changed: the server checks them.
func sinceParameter(text string, now time.Time) (string, error) {
	if !timeOfDay.MatchString(text) {
		return text, nil
	}
	layout := "15:04"
	if len(text) > len("15:04") {
		layout = "15:04:05"
	}
	t, err := time.Parse(layout, text)
	if err != nil {
		return "", fmt.Errorf("%q is not a time of day", text)
	}
	day := now.Day()
	at := func() time.Time {
		return time.Date(now.Year(), now.Month(), day, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
	}
	if at().After(now) {
		day--
	}
	return at().Format(time.RFC3339), nil
}

// changePrinter returns a function that prints changes when they arrive, as rows of a table or as documents.
// namespaces adds a column with the namespace.
func (s *session) changePrinter(namespaces bool, output string) func([]history.ObjectChange) error {
	if output == "json" || output == "yaml" {
		return func(part []history.ObjectChange) error {
			for i := range part {
				if output == "yaml" {
					s.printf("---\n")
				}
				if err := s.print(&part[i], output); err != nil {
					return err
				}
			}
			return nil
		}
	}
	wide := output == "wide"
	t := table{out: s.Out, header: changeHeader(namespaces, wide)}
	if s.Color {
		t.color = changeColor
	}
	last := len(t.header) - 1 // the paths of the fields
	return func(part []history.ObjectChange) error {
		if len(part) == 0 {
			return nil
		}
		var rows [][]string
		for i := range part {
			rows = append(rows, s.changeRow(&part[i], namespaces, wide))
		}
		t.fit(rows)
		room := 0
		if s.Columns > 0 {
			room = max(s.Columns-t.before(last), leastRoom)
		}
		for i := range rows {
			c := &part[i].Change
			changed := changedOf(c)
			switch {
			case wide:
				changed = changedUpTo(c, len(c.Changed))
			case room > 0:
				changed = changedWithin(c, room)
			}
			rows[i] = append(rows[i], changed)
		}
		return t.write(rows)
	}
}

func changeHeader(namespaces, wide bool) (header []string) {
	if namespaces {
		header = append(header, "NAMESPACE")
	}
	header = append(header, "TIME")
	if wide {
		header = append(header, "REVISION")
	}
	return append(header, "TYPE", "OBJECT", "USER", "REQUEST", "CHANGED")
}

// changeRow returns all cells of a change except the last one, which has the changed paths.
func (s *session) changeRow(c *history.ObjectChange, namespaces, wide bool) (row []string) {
	if namespaces {
		row = append(row, c.Namespace)
	}
	row = append(row, timeOf(&c.Change))
	if wide {
		row = append(row, c.ResourceVersion)
	}
	return append(row, string(c.Type), s.catalog.objectOf(c), userOf(&c.Change), requestOf(&c.Change))
}

// objectOf returns the name of a changed object with its resource: deployment.apps/web. If the resource is not in
// the catalog, its plural is used.
func (c catalog) objectOf(change *history.ObjectChange) string {
	for _, r := range c {
		if r.Group == change.Group && r.Name == change.Resource {
			return r.objectName(change.Name)
		}
	}
	return resource{Group: change.Group, Name: change.Resource}.String() + "/" + change.Name
}

// changeColor returns the colour for a type of change. The colours are the same as in a diff.
func changeColor(_ int, cell string) string {
	switch history.ChangeType(cell) {
	case history.Created:
		return "32"
	case history.Deleted, history.Expired:
		return "31"
	}
	return ""
}

// leastRoom is the least number of characters for changed paths, even if the line is then longer than the
// terminal.
const leastRoom = 20

// changedWithin returns as many of the changed paths as fit into room characters.
func changedWithin(c *history.Change, room int) string {
	text := ""
	for most := len(c.Changed); most >= min(len(c.Changed), 1); most-- {
		if text = changedUpTo(c, most); utf8.RuneCountInString(text) <= room {
			return text
		}
	}
	const cut = "..."
	return string([]rune(text)[:room-len(cut)]) + cut
}

// inNamespace returns the words about a namespace in a message; "" is all.
func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}
