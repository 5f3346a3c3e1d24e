package kubectlhistory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Copy reads a copy that a server keeps of its data elsewhere, which flags of a subcommand name.
type Copy interface {
	AddFlags(c *cobra.Command)
	// Named reports whether the flags name a copy.
	Named() bool
	// Check returns an error if flags say how a copy is read, and none names it.
	Check() error
	// Open starts a server in this process on what the copy has as of a moment, a value of --as-of; "" is its end. The server answers
	// requests about the past as any other one. elsewhere returns objects of the server to which objects come back.
	Open(ctx context.Context, asOf string, elsewhere undelete.Elsewhere) (*OpenedCopy, error)
}

// OpenedCopy is a server on a copy. The caller calls Close.
type OpenedCopy struct {
	URL   string
	HTTP  *http.Client
	Token string // of an administrator
	// Revision is the last revision of the server. Moment is the same for people, and First is the first moment that the copy has.
	Revision      int64
	Moment, First string
	Close         func() error
}

// openCopy is the copy of a session. At most one moment of it is open.
type openCopy struct {
	Copy
	asOf    string // what was asked for
	opened  *OpenedCopy
	client  *client
	catalog catalog
}

func (c *openCopy) close() (err error) {
	if c.opened != nil {
		c.client.http.CloseIdleConnections()
		err = c.opened.Close()
		c.opened = nil
	}
	return err
}

// past is where the past is read: the server of the session, or a copy.
type past struct {
	client  *client
	catalog catalog
	asOf    string      // the time for requests; "" is the one that the server chooses
	copy    *OpenedCopy // nil: the server
}

// past returns where the past as of a time is read. It opens the copy, if the session has one.
func (s *session) past(asOf string) (*past, error) {
	c := s.copy
	if c == nil {
		return &past{client: s.client, catalog: s.catalog, asOf: asOf}, nil
	}
	if c.opened == nil || asOf != c.asOf && asOf != strconv.FormatInt(c.opened.Revision, 10) {
		if err := errors.Join(c.close(), s.open(asOf)); err != nil {
			return nil, err
		}
	}
	p := &past{client: c.client, catalog: c.catalog, copy: c.opened}
	if asOf != "" {
		p.asOf = strconv.FormatInt(c.opened.Revision, 10)
	}
	return p, nil
}

// open opens the copy as of a time.
func (s *session) open(asOf string) (err error) {
	c := s.copy
	if c.opened, err = c.Open(s.ctx, asOf, s.now); err != nil {
		return err
	}
	s.warnf("The copy is read as of %s.", c.opened.Moment)
	c.asOf = asOf
	c.client = &client{
		base: c.opened.URL, http: c.opened.HTTP, header: http.Header{"Authorization": {"Bearer " + c.opened.Token}}, warn: s.client.warn,
	}
	c.catalog, err = c.client.discover(s.ctx)
	return err
}

// now is the undelete.Elsewhere of the session.
func (s *session) now(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error) {
	r := resource{Group: gvr.Group, Version: gvr.Version, Name: gvr.Resource, Namespaced: namespace != ""}
	o, err := s.client.getOrNil(ctx, r, namespace, name, "")
	if kerrors.IsForbidden(err) {
		return nil, nil
	}
	return o, err
}

// moment returns the time for requests that need one.
func (p *past) moment() string {
	if p.copy != nil {
		return strconv.FormatInt(p.copy.Revision, 10)
	}
	return p.asOf
}

// said returns the time of the past for messages. asOf is the flag.
func (p *past) said(asOf string) string {
	if p.copy != nil {
		return p.copy.Moment + " in the copy"
	}
	return asOf
}

func (p *past) find(kind string) (resource, error) {
	r, err := p.catalog.find(kind)
	return r, p.explain(err)
}

func (p *past) findAll(kinds string) ([]resource, error) {
	list, err := p.catalog.findAll(kinds)
	return list, p.explain(err)
}

// explain returns the error of a resource type that is not there.
func (p *past) explain(err error) error {
	if err != nil && p.copy != nil {
		return fmt.Errorf("as of %s in the copy, %w", p.copy.Moment, err)
	}
	return err
}

// explainObject is explain for one object. If a copy does not have it, the error says at which moment the copy had it last, as far as
// that is known.
func (s *session) explainObject(err error, r resource, name, asOf string) error {
	if s.copy == nil || s.copy.opened == nil || !kerrors.IsNotFound(err) {
		return explain(err, asOf)
	}
	c := s.copy
	err = fmt.Errorf("%w as of %s in the copy", err, c.opened.Moment)
	var last *history.Change
	_ = c.client.changes(s.ctx, r, s.namespaceOf(r), name, url.Values{"limit": {"1"}}, func(ch *history.Change) (bool, error) {
		last = ch
		return false, nil
	}) // without an answer, nothing is known
	if last != nil && last.Type == history.Deleted && last.Time != nil {
		at, _ := strconv.ParseInt(last.ResourceVersion, 10, 64)
		return fmt.Errorf("%w; it was deleted at %s, and --as-of %d is its last state", err, last.Time.Format(time.RFC3339), at-1)
	}
	return fmt.Errorf("%w; --as-of names another moment, from %s on", err, c.opened.First)
}

// named reports whether a copy is named.
func (f *writeFlags) named() bool { return f.copy != nil && f.copy.Named() }

// withCopy returns run with the copy in the session, if one is named.
func (f *writeFlags) withCopy(run func(s *session, args []string) error) func(s *session, args []string) error {
	return func(s *session, args []string) (err error) {
		if f.named() {
			s.copy = &openCopy{Copy: f.copy}
			defer func() { err = errors.Join(err, s.copy.close()) }()
		}
		err = run(s, args)
		if hint := hintOfCopy(err); hint != "" {
			err = fmt.Errorf("%w. %s", err, hint)
		}
		return err
	}
}

// hintOfCopy returns what to do about an error of a copy, "" if it is another one.
func hintOfCopy(err error) string {
	if err == nil || !strings.Contains(err.Error(), registry.ErrEncrypted.Error()) {
		return ""
	}
	return "Values in the copy are encrypted; --encryption-provider-config names the file of this flag of their server."
}

// definitionTime limits the time until the resource of a new definition is served.
const definitionTime = 10 * time.Second

// served returns an error if the server does not serve the resource of a step out of a copy. If its definition was created before, it
// waits. In a dry run such a definition counts as served.
func (b *bringingBack) served(r resource) error {
	if b.s.copy == nil {
		return nil
	}
	has := func(c catalog) bool {
		return slices.ContainsFunc(c, func(o resource) bool { return o.Group == r.Group && o.Version == r.Version && o.Name == r.Name })
	}
	defined := b.defined[r.String()]
	ctx, cancel := context.WithTimeout(b.s.ctx, definitionTime)
	defer cancel()
	for !has(b.s.catalog) {
		if defined && !b.rep.yes {
			return nil
		}
		if !defined {
			return fmt.Errorf("the server does not have %s in version %s; if it is a custom resource, bring back its definition first: "+
				"undelete customresourcedefinition %s", r, r.Version, r)
		}
		select {
		case <-ctx.Done():
			return cmp.Or(b.s.ctx.Err(), fmt.Errorf("%s is not served yet: undelete it later", r))
		case <-time.After(100 * time.Millisecond):
		}
		list, err := b.s.client.discover(ctx)
		if err != nil {
			return err
		}
		b.s.catalog = list
	}
	return nil
}
