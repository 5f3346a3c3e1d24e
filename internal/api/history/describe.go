package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Object is an object after a change, in JSON.
type Object struct {
	JSON []byte // nil if the object is not there or cannot be read
	Err  error
}

// Decode returns the object after a change, in the version of the request.
func Decode(ctx context.Context, s *registry.Served, c *registry.PastChange) Object {
	return decode(ctx, s, c, s.Resource.Renderer.ItemJSONOnce)
}

// DecodeWritten is Decode without a conversion webhook: a custom resource is in the version that it was written in.
func DecodeWritten(ctx context.Context, s *registry.Served, c *registry.PastChange) Object {
	return decode(ctx, s, c, s.Resource.Renderer.WrittenJSON)
}

func decode(
	ctx context.Context, s *registry.Served, c *registry.PastChange,
	text func(context.Context, *cache.Object, *registry.Version) ([]byte, error),
) (o Object) {
	if c.Object == nil {
		return Object{Err: c.Err}
	}
	o.JSON, o.Err = text(ctx, c.Object, s.Version)
	return o
}

// Version returns the version in the apiVersion of a custom resource. It returns "" for a built-in object, because
// its JSON has no apiVersion.
func (o Object) Version() string {
	value, _, _, _, err := wire.Member(o.JSON, "apiVersion")
	var text string
	if err != nil || json.Unmarshal(value, &text) != nil {
		return ""
	}
	gv, err := schema.ParseGroupVersion(text)
	if err != nil {
		return ""
	}
	return gv.Version
}

// member decodes the member name of the metadata into v. It leaves v unchanged if there is no such member.
func (o Object) member(name string, v any) {
	metadata, _, _, found, err := wire.Member(o.JSON, "metadata")
	if err != nil || !found {
		return
	}
	if value, _, _, found, err := wire.Member(metadata, name); err == nil && found {
		_ = json.Unmarshal(value, v) // a member of another type counts as missing
	}
}

// uid returns the UID of the object, "" if it is not known.
func (o Object) uid() (uid types.UID) {
	o.member("uid", &uid)
	return uid
}

// Labels returns the labels of the object.
func (o Object) Labels() (set labels.Set) {
	o.member("labels", &set)
	return set
}

// Made returns when, by whom and how a change was made.
func Made(c *registry.PastChange) Change {
	a := c.Author
	return Change{
		ResourceVersion: strconv.FormatInt(c.Revision, 10), Time: TimeOf(c.Time),
		User: a.User, Impersonator: a.Impersonator, Verb: a.Verb, Subresource: a.Subresource, FieldManager: a.Manager,
		UserAgent: a.UserAgent, AuditID: a.AuditID, Reason: a.Reason,
	}
}

// Describe returns a change as answers show it. before is the version before the change; it is zero if that
// version is not kept.
func Describe(c *registry.PastChange, after, before Object) Change {
	out, a := Made(c), c.Author
	out.UID = after.uid()
	switch {
	case c.Deleted:
		out.Type, out.UID = Deleted, before.uid()
		if a.Verb == "" && !c.Time.IsZero() { // all other deletions have an author, who is kept as long as the time
			out.Type = Expired
		}
	case c.CreateRevision == c.Revision:
		out.Type = Created
	default:
		out.Type = Updated
		if after.JSON != nil && before.JSON != nil && after.Err == nil {
			out.Changed, out.MoreChanged, after.Err = Changed(before.JSON, after.JSON)
		}
	}
	if after.Err != nil {
		out.Unreadable = after.Err.Error()
	}
	if c.Time.IsZero() && (out.Type == Created || before.JSON != nil) {
		out.takeManager(after, before)
	}
	return out
}

// managedFields is an entry of metadata.managedFields without its fields.
type managedFields struct {
	Manager, Operation, APIVersion, Subresource string
	Time                                        metav1.Time
}

// takeManager sets the time, in seconds, and the field manager of a change whose author was not kept. It takes
// them from the entry of managedFields that the change has added or renewed. (The client has chosen the name of
// the manager.) If there are several such entries, it takes only the time. It cannot recognize the second of two
// writes of one manager in the same second.
func (c *Change) takeManager(after, before Object) {
	var entries, earlier []managedFields
	after.member("managedFields", &entries)
	before.member("managedFields", &earlier)
	var newest []managedFields
	for _, e := range entries {
		switch {
		case e.Time.IsZero() || slices.Contains(earlier, e) || len(newest) > 0 && e.Time.Before(&newest[0].Time):
		case len(newest) > 0 && e.Time.Equal(&newest[0].Time):
			newest = append(newest, e)
		default:
			newest = []managedFields{e}
		}
	}
	if len(newest) > 0 {
		c.Time = TimeOf(newest[0].Time.Time)
	}
	if len(newest) == 1 {
		c.FieldManager, c.Subresource = newest[0].Manager, newest[0].Subresource
	}
}

// ParseTime parses a parameter that is a time (RFC 3339) or a duration before now.
func ParseTime(parameter, value string, now time.Time) (time.Time, error) {
	if before, err := time.ParseDuration(value); err == nil && before >= 0 {
		return now.Add(-before), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, kerrors.NewBadRequest(fmt.Sprintf(
			"invalid %s %q: it has to be a time (RFC 3339), a duration before now such as 1h30m, or a resourceVersion", parameter, value,
		))
	}
	return at, nil
}
