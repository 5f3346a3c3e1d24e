package kubectlhistory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/history"
)

// feed reads the changes of the objects in a namespace, and knows how far it has read.
type feed struct {
	client *client
	path   string
	query  url.Values // label and field selectors
	begin  string     // the parameter since of the first request
	newest bool       // list has the newest change first
	// All changes before revision were read. If seen is empty, all changes of revision were read too, else only
	// those in seen. revision is 0 before the first request.
	revision int64
	seen     map[string]bool
}

// newFeed returns the feed of a namespace after a time, with label and field selectors. "" means all namespaces.
func newFeed(c *client, namespace, since, labels, fields string) *feed {
	f := &feed{client: c, path: "/apis/" + history.APIVersion, query: url.Values{}, begin: since}
	if namespace != "" {
		f.path += "/namespaces/" + url.PathEscape(namespace)
	}
	f.path += "/changes"
	for name, value := range map[string]string{"labelSelector": labels, "fieldSelector": fields} {
		if value != "" {
			f.query.Set(name, value)
		}
	}
	return f
}

// reached returns the resourceVersion after which the next request begins. If only a part of the changes of
// revision was read, these changes are read again.
func (f *feed) reached() string {
	revision := f.revision
	if len(f.seen) > 0 {
		revision--
	}
	return strconv.FormatInt(revision, 10)
}

// parameters returns the parameters of the next request.
func (f *feed) parameters() url.Values {
	query := url.Values{"since": {f.begin}}
	if f.revision > 0 {
		query.Set("since", f.reached())
	}
	for name, values := range f.query {
		query[name] = values
	}
	return query
}

// take notes that a change was read. It returns false if it was read before.
func (f *feed) take(c *history.ObjectChange) (bool, error) {
	revision, err := strconv.ParseInt(c.ResourceVersion, 10, 64)
	if err != nil {
		return false, fmt.Errorf("the server sends a change with the resourceVersion %q", c.ResourceVersion)
	}
	name := c.Namespace + "/" + c.Metadata.Name
	if revision < f.revision || revision == f.revision && (len(f.seen) == 0 || f.seen[name]) {
		return false, nil
	}
	if revision > f.revision {
		f.revision, f.seen = revision, map[string]bool{}
	}
	f.seen[name] = true
	return true, nil
}

// list calls show with the changes of each page, up to now, or up to limit changes (0 means no limit). A page
// contains all changes of its last revision. more is true if the limit ended the list.
func (f *feed) list(ctx context.Context, limit int, show func([]history.ObjectChange) error) (more bool, err error) {
	query := f.parameters()
	if f.newest {
		query.Set("newestFirst", "true")
	}
	for found := 0; ; {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-found)
		}
		query.Set("limit", strconv.Itoa(size))
		body, err := f.client.request(ctx, http.MethodGet, f.path, query, mediaJSON, nil)
		if err != nil {
			return false, err
		}
		var page history.ChangeList
		if err := json.Unmarshal(body, &page); err != nil || page.Kind != "ChangeList" {
			return false, errors.New("the server answers no list of changes")
		}
		var items []history.ObjectChange
		if f.newest {
			items = page.Items // a page ends with all changes of a revision
		}
		for i := range page.Items[len(items):] {
			unread, err := f.take(&page.Items[i])
			if err != nil {
				return false, err
			}
			if unread {
				items = append(items, page.Items[i])
			}
		}
		if through, err := strconv.ParseInt(page.ResourceVersion, 10, 64); err == nil && through >= f.revision {
			f.revision, f.seen = through, nil
		}
		if err := show(items); err != nil {
			return false, err
		}
		found += len(items)
		if page.Continue == "" || limit > 0 && found >= limit {
			return page.Continue != "", nil
		}
		query.Set("continue", page.Continue)
	}
}

// watch calls show with each new change after those that were read, until the server ends the watch.
func (f *feed) watch(ctx context.Context, show func([]history.ObjectChange) error) error {
	query := f.parameters()
	query.Set("watch", "true")
	r, err := f.client.send(ctx, http.MethodGet, f.path, query, mediaJSON, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode >= http.StatusMultipleChoices {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		return f.client.refusal(r, body)
	}
	events := json.NewDecoder(r.Body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("the connection ended: %w", err)
		}
		if e.Type == "ERROR" {
			var status metav1.Status
			if err := json.Unmarshal(e.Object, &status); err != nil {
				return err
			}
			return &kerrors.StatusError{ErrStatus: status}
		}
		var c history.ObjectChange
		if err := json.Unmarshal(e.Object, &c); err != nil {
			return err
		}
		unread, err := f.take(&c)
		if err == nil && unread {
			err = show([]history.ObjectChange{c})
		}
		if err != nil {
			return err
		}
	}
}

// follow calls show with the changes up to now, and then with each new one, until an interrupt. If the connection
// ends, it continues from the last change that was read.
func (s *session) follow(f *feed, show func([]history.ObjectChange) error) error {
	var printing error // an error of show; it ends follow
	visit := func(part []history.ObjectChange) error {
		printing = show(part)
		return printing
	}
	var pause backoff
	reached, said := false, ""
	for {
		began := time.Now()
		_, err := f.list(s.ctx, 0, visit)
		if err == nil {
			reached = true
			err = f.watch(s.ctx, visit)
		}
		switch {
		case s.ctx.Err() != nil:
			return nil
		case err != nil && (!reached || printing != nil || !temporary(err)):
			return err
		case err != nil && err.Error() != said:
			said = err.Error()
			s.warnf("%s; trying again", printable(said))
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-time.After(pause.after(time.Since(began))):
		}
	}
}

// temporary reports whether a request that failed may succeed later.
func temporary(err error) bool {
	if status := kerrors.APIStatus(nil); errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	return true
}

// backoff computes how long to wait before the next attempt to connect.
type backoff struct{ next time.Duration }

// after returns the time to wait after a connection of the given length: first none, then one second, and twice as
// long each time, up to half a minute. After a connection of at least half a minute it begins with none again.
func (b *backoff) after(lasted time.Duration) time.Duration {
	const longest = 30 * time.Second
	if lasted >= longest {
		b.next = 0
	}
	wait := b.next
	b.next = min(max(2*wait, time.Second), longest)
	return wait
}
