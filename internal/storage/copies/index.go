package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/changelog"
)

const (
	epochFormat = "%010d/"
	imageFormat = "image-%019d-%013d.snapshot"
	encrypted   = ".age"
)

// Image is an image in a copy.
type Image struct {
	Object
	Revision int64
	Time     time.Time // of the state, to the millisecond
}

// Segment is a segment in a copy.
type Segment struct {
	Object
	changelog.Name
	own bool // this process has written it
}

// Epoch is one line of history in a copy.
type Epoch struct {
	Number   int64
	Images   []Image   // in the order of their revisions
	Segments []Segment // in the order of the revisions after which they begin
}

// Index is what a bucket has.
type Index struct {
	Epochs []*Epoch // in the order of their numbers
	Other  []string // names of objects that are no part of a copy
}

// ReadIndex lists a bucket.
func ReadIndex(ctx context.Context, b Bucket) (*Index, error) {
	objects, err := b.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the copy: %w", err)
	}
	x := &Index{}
	for _, o := range objects {
		if !x.add(o) {
			x.Other = append(x.Other, o.Name)
		}
	}
	return x, nil
}

// add adds an object to the index. It returns false for one that is no part of a copy.
func (x *Index) add(o Object) bool {
	var number int64
	dir, name, ok := strings.Cut(o.Name, "/")
	if _, err := fmt.Sscanf(dir+"/", epochFormat, &number); !ok || err != nil || fmt.Sprintf(epochFormat, number) != dir+"/" {
		return false
	}
	name = strings.TrimSuffix(name, encrypted)
	if segment, ok := changelog.ParseName(name); ok {
		e := x.epoch(number)
		e.Segments = append(e.Segments, Segment{Object: o, Name: segment})
		return true
	}
	var revision, ms int64
	if _, err := fmt.Sscanf(name, imageFormat, &revision, &ms); err != nil || fmt.Sprintf(imageFormat, revision, ms) != name {
		return false
	}
	e := x.epoch(number)
	e.Images = append(e.Images, Image{o, revision, time.UnixMilli(ms)})
	return true
}

// epoch returns the epoch of a number, which is not below those of the epochs before.
func (x *Index) epoch(number int64) *Epoch {
	if n := len(x.Epochs); n > 0 && x.Epochs[n-1].Number == number {
		return x.Epochs[n-1]
	}
	e := &Epoch{Number: number}
	x.Epochs = append(x.Epochs, e)
	return e
}

// Newest returns the newest epoch, nil if there is none.
func (x *Index) Newest() *Epoch {
	if len(x.Epochs) == 0 {
		return nil
	}
	return x.Epochs[len(x.Epochs)-1]
}

// next returns the segment with which a reader at a revision goes on; ok is false at the end.
func (e *Epoch) next(revision int64) (best Segment, ok bool) {
	for _, s := range e.Segments {
		if s.After > revision {
			break
		}
		if s.Through > revision && (!ok || s.Through > best.Through) {
			best, ok = s, true
		}
	}
	return best, ok
}

// chain returns the segments that a reader at a revision applies, up to the revision until (0: all), and the last revision that it
// reaches.
func (e *Epoch) chain(revision, until int64) (list []Segment, end int64) {
	for end = revision; until == 0 || end < until; {
		s, ok := e.next(end)
		if !ok {
			break
		}
		list, end = append(list, s), s.Through
	}
	return list, end
}

// Target is a moment to restore. At most one of the fields is set; without any it is the end of the copy.
type Target struct {
	Revision int64
	Time     time.Time
}

// Plan is how a state is made out of a copy.
type Plan struct {
	Target
	Epoch    int64
	Image    Image
	Segments []Segment
	End      int64 // the last revision that the segments reach
}

// goesOn reports whether the epoch has anything after a revision.
func (e *Epoch) goesOn(revision int64) bool {
	return slices.ContainsFunc(e.Segments, func(s Segment) bool { return s.Through > revision }) ||
		slices.ContainsFunc(e.Images, func(i Image) bool { return i.Revision > revision })
}

// lastTime returns the time of the last change that the plan applies.
func (p *Plan) lastTime() time.Time {
	if n := len(p.Segments); n > 0 {
		return p.Segments[n-1].Last
	}
	return p.Image.Time
}

// errNoImage is the error of a plan for a moment that no image is before.
var errNoImage = errors.New("the copy does not reach back to that moment")

// Plan returns how a state is made. Of several images it takes the newest one.
func (x *Index) Plan(t Target) (*Plan, error) {
	for _, e := range slices.Backward(x.Epochs) {
		for _, image := range slices.Backward(e.Images) {
			if t.Revision > 0 && image.Revision > t.Revision || !t.Time.IsZero() && image.Time.After(t.Time) {
				continue
			}
			p := &Plan{Target: t, Epoch: e.Number, Image: image}
			p.Segments, p.End = e.chain(image.Revision, t.Revision)
			if e.goesOn(p.End) && t.Revision == 0 && (t.Time.IsZero() || !t.Time.Before(p.lastTime())) {
				return nil, fmt.Errorf("the changes after revision %d are missing in the copy, and later ones are there", p.End)
			}
			if t.Revision > p.End {
				return nil, fmt.Errorf("the copy ends at revision %d, before %d", p.End, t.Revision)
			}
			return p, nil
		}
	}
	if len(x.Epochs) == 0 {
		return nil, errors.New("there is no copy")
	}
	return nil, errNoImage
}
