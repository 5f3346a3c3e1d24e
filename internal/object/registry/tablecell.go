package registry

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Elapsed is a table cell with the time since a moment, between two texts: "5m", "3 (5m ago)". Its text depends on the
// time of reading. The rest of a row depends on the object only, so that rows can be cached.
type Elapsed struct {
	Before string
	Since  time.Time
	After  string
}

// Text is the cell as it reads at a time.
func (e Elapsed) Text(now time.Time) string { return e.Before + ElapsedText(e.Since, now) + e.After }

// ElapsedText writes how long ago a time was as tables do, such as "3d2h".
func ElapsedText(since, now time.Time) string { return duration.HumanDuration(now.Sub(since)) }

// MarshalJSON encodes the cell as it reads now.
func (e Elapsed) MarshalJSON() ([]byte, error) { return json.Marshal(e.Text(time.Now())) }

// Distance is a table cell with the distance to a moment that may be ahead: "in 5m", and later "5m ago". Its text depends on
// the time of reading, as that of Elapsed.
type Distance struct{ To time.Time }

// Text is the cell as it reads at a time.
func (d Distance) Text(now time.Time) string {
	if d.To.After(now) {
		return "in " + duration.HumanDuration(d.To.Sub(now))
	}
	return ElapsedText(d.To, now) + " ago"
}

// MarshalJSON encodes the cell as it reads now.
func (d Distance) MarshalJSON() ([]byte, error) { return json.Marshal(d.Text(time.Now())) }

// Row returns the part of a table row that depends on o only, from the cache or from encode, which gets the object in
// the version that cells are made from. The result must not be changed.
func (r *Renderer) Row(ctx context.Context, o *cache.Object, encode func(Object) ([]byte, error)) ([]byte, error) {
	return r.cache.Encoded(o, r.rowID(o), func() ([]byte, error) {
		obj, err := r.decoder.Decode(ctx, o)
		if err != nil {
			return nil, err
		}
		return encode(obj)
	})
}
