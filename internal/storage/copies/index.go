package copies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

const (
	epochFormat = "%010d/"
	imageFormat = "image-%019d-%013d.snapshot"
	// originFormat is the name of an empty object: the epoch goes on from this one, after this revision.
	originFormat = "from-%010d-%019d.origin"
	// sealed is the end of the name of an encrypted object.
	sealed = ".age"
)

// Image is an image in a copy.
type Image struct {
	bucket.Object
	Epoch, Revision int64
	Time            time.Time // of the state, to the millisecond
}

// Segment is a segment in a copy.
type Segment struct {
	bucket.Object
	changelog.Name
	Epoch int64
	// Until is the last revision that counts: Through, or less if a later epoch goes on after an earlier revision.
	Until int64
	own   bool // this process has written it
}

// Origin is where an epoch goes on: after a revision of an earlier epoch.
type Origin struct {
	bucket.Object
	Epoch, Revision int64
}

// Epoch is what was written in one term of a writer.
type Epoch struct {
	Number   int64
	Origin   *Origin   // nil if the epoch begins with an image
	Images   []Image   // in the order of their revisions
	Segments []Segment // in the order of the revisions after which they begin
}

// Line is one line of history: an epoch with which it ends, and of each epoch before it what the next one goes on from. What a
// writer that has lost its lock wrote afterwards is not in the line of the one that has taken over.
type Line struct {
	Epochs   []int64   // in descending order
	Images   []Image   // in the order of their revisions
	Segments []Segment // in the order of the revisions after which they begin
	Origins  []Origin  // in descending order of their revisions
	alone    bool      // there are no other lines in the bucket any more
	// found is the time of its last change when it was found, at foundAt by Lock.Since.
	found   time.Time
	foundAt time.Duration
	// first is the state of the first image, until that is written; nil otherwise.
	first *embedded.Export
}

// Index is what a bucket has.
type Index struct {
	Epochs []*Epoch // in the order of their numbers
	Other  []string // names of objects that are no part of a copy
}

// encrypted reports whether an object is encrypted.
func encrypted(o bucket.Object) bool { return strings.HasSuffix(o.Name, sealed) }

// listings is how often ReadIndex lists a bucket in which something is missing.
const listings = 4

// ReadIndex lists a bucket. A listing is not a snapshot: if segments are merged meanwhile, it may have neither them nor the merged one. So
// if segments are missing, ReadIndex lists the bucket again, at most four times in all. The result may still lack the newest objects.
func ReadIndex(ctx context.Context, b bucket.Bucket) (x *Index, err error) {
	for range listings {
		if x, err = list(ctx, b); err != nil || x.complete() {
			break
		}
	}
	return x, err
}

// list is ReadIndex with one listing.
func list(ctx context.Context, b bucket.Bucket) (*Index, error) {
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

// complete reports whether no line lacks a segment between others.
func (x *Index) complete() bool {
	return !slices.ContainsFunc(x.Lines(), func(l *Line) bool {
		end, _ := l.end()
		return l.goesOn(end)
	})
}

// add adds an object to the index. It returns false for one that is no part of a copy.
func (x *Index) add(o bucket.Object) bool {
	var number int64
	dir, name, ok := strings.Cut(o.Name, "/")
	if _, err := fmt.Sscanf(dir+"/", epochFormat, &number); !ok || err != nil || fmt.Sprintf(epochFormat, number) != dir+"/" {
		return false
	}
	name = strings.TrimSuffix(name, sealed)
	if segment, ok := changelog.ParseName(name); ok {
		e := x.epoch(number)
		e.Segments = append(e.Segments, Segment{Object: o, Name: segment, Epoch: number, Until: segment.Through})
		return true
	}
	var from, revision, ms int64
	if _, err := fmt.Sscanf(name, originFormat, &from, &revision); err == nil && fmt.Sprintf(originFormat, from, revision) == name {
		x.epoch(number).Origin = &Origin{o, from, revision}
		return true
	}
	if _, err := fmt.Sscanf(name, imageFormat, &revision, &ms); err != nil || fmt.Sprintf(imageFormat, revision, ms) != name {
		return false
	}
	e := x.epoch(number)
	e.Images = append(e.Images, Image{o, number, revision, time.UnixMilli(ms)})
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

// Newest returns the number of the newest epoch, 0 if there is none.
func (x *Index) Newest() int64 {
	if n := len(x.Epochs); n > 0 {
		return x.Epochs[n-1].Number
	}
	return 0
}

// Lines returns the lines of history, beginning with the one that the newest epoch ends. Each epoch is in one of them, unless several
// go on from it.
func (x *Index) Lines() (list []*Line) {
	used := map[int64]bool{}
	for _, e := range slices.Backward(x.Epochs) {
		if used[e.Number] {
			continue
		}
		l := x.line(e)
		for _, number := range l.Epochs {
			used[number] = true
		}
		list = append(list, l)
	}
	return list
}

// current returns the newest line of which something can be restored, nil if there is none.
func (x *Index) current() *Line {
	for _, l := range x.Lines() {
		if len(l.Images) > 0 {
			return l
		}
	}
	return nil
}

// cut removes from a line what is after a revision.
func (l *Line) cut(revision int64) {
	l.Images = slices.DeleteFunc(l.Images, func(i Image) bool { return i.Revision > revision })
	l.Segments = slices.DeleteFunc(l.Segments, func(s Segment) bool { return s.After >= revision })
	for i := range l.Segments {
		l.Segments[i].Until = min(l.Segments[i].Until, revision)
	}
}

// writtenBy returns the epoch in which a reader finds a revision, 0 if there is none.
func (l *Line) writtenBy(revision int64) int64 {
	if s, ok := l.next(revision - 1); ok {
		return s.Epoch
	}
	for _, image := range l.Images {
		if image.Revision == revision {
			return image.Epoch
		}
	}
	return 0
}

// last returns the time of the last change or image of the line.
func (l *Line) last() (at time.Time) {
	for _, image := range l.Images {
		if image.Time.After(at) {
			at = image.Time
		}
	}
	for _, s := range l.Segments {
		if s.Last.After(at) {
			at = s.Last
		}
	}
	return at
}

// line returns the line that an epoch ends.
func (x *Index) line(e *Epoch) *Line {
	l := &Line{}
	for until := int64(math.MaxInt64); ; {
		l.Epochs = append(l.Epochs, e.Number)
		for _, image := range e.Images {
			if image.Revision <= until {
				l.Images = append(l.Images, image)
			}
		}
		for _, s := range e.Segments {
			if s.Until = min(s.Through, until); s.After < until {
				l.Segments = append(l.Segments, s)
			}
		}
		if e.Origin == nil {
			break
		}
		l.Origins = append(l.Origins, *e.Origin)
		i := slices.IndexFunc(x.Epochs, func(o *Epoch) bool { return o.Number == e.Origin.Epoch })
		if i < 0 || x.Epochs[i].Number >= e.Number {
			break // what it goes on from is older than the retention
		}
		until, e = min(until, e.Origin.Revision), x.Epochs[i]
	}
	slices.SortStableFunc(l.Images, func(a, b Image) int { return cmp.Compare(a.Revision, b.Revision) })
	slices.SortStableFunc(l.Segments, func(a, b Segment) int { return cmp.Compare(a.After, b.After) })
	return l
}

// covers reports whether the line has what an epoch wrote up to a revision.
func (l *Line) covers(epoch, revision int64) bool {
	if epoch == l.Epochs[0] {
		return true
	}
	for _, o := range l.Origins {
		if revision > o.Revision {
			return false
		}
		if o.Epoch == epoch {
			return slices.Contains(l.Epochs, epoch)
		}
	}
	return false
}

// next returns the segment with which a reader at a revision goes on; ok is false at the end.
func (l *Line) next(revision int64) (best Segment, ok bool) {
	for _, s := range l.Segments {
		if s.After > revision {
			break
		}
		if s.Until > revision && (!ok || s.Until > best.Until) {
			best, ok = s, true
		}
	}
	return best, ok
}

// chain returns the segments that a reader at a revision applies, up to the revision until (0: all), and the last revision that it
// reaches.
func (l *Line) chain(revision, until int64) (list []Segment, end int64) {
	for end = revision; until == 0 || end < until; {
		s, ok := l.next(end)
		if !ok {
			break
		}
		list, end = append(list, s), s.Until
	}
	return list, end
}

// end returns the revision up to which the line has all changes, and when it was written. The time is zero if there is no image. It
// begins with the oldest image: changes that only a later image has are missing for the moments in between.
func (l *Line) end() (revision int64, at time.Time) {
	if len(l.Images) == 0 {
		return 0, time.Time{}
	}
	image := l.Images[0]
	list, revision := l.chain(image.Revision, 0)
	if len(list) == 0 {
		return revision, image.Time
	}
	return revision, list[len(list)-1].Last
}

// Target is a moment to restore. At most one of the fields is set; without any it is the end of the copy.
type Target struct {
	Revision int64
	Time     time.Time
}

// Plan is how a state is made out of a copy.
type Plan struct {
	Target
	Epoch    int64 // the newest one of the line
	Image    Image
	Segments []Segment
	End      int64 // the last revision that the segments reach
}

// goesOn reports whether the line has anything after a revision.
func (l *Line) goesOn(revision int64) bool {
	return slices.ContainsFunc(l.Segments, func(s Segment) bool { return s.Until > revision }) ||
		slices.ContainsFunc(l.Images, func(i Image) bool { return i.Revision > revision })
}

// lastTime returns the time of the last change that the plan applies.
func (p *Plan) lastTime() time.Time {
	if n := len(p.Segments); n > 0 {
		return p.Segments[n-1].Last
	}
	return p.Image.Time
}

// ErrEmpty is the error if there is no copy.
var ErrEmpty = errors.New("there is no copy")

// errNoImage is the error of a plan for a moment that no image is before.
var errNoImage = errors.New("the copy does not reach back to that moment")

// Plan returns how a state is made. Of several images it takes the newest one. It fails with ErrEmpty if there is no copy.
func (x *Index) Plan(t Target) (*Plan, error) {
	var later *Line
	for _, l := range x.Lines() {
		for _, image := range slices.Backward(l.Images) {
			if t.Revision > 0 && image.Revision > t.Revision || !t.Time.IsZero() && image.Time.After(t.Time) {
				continue
			}
			p := &Plan{Target: t, Epoch: l.Epochs[0], Image: image}
			p.Segments, p.End = l.chain(image.Revision, t.Revision)
			if l.goesOn(p.End) && t.Revision == 0 && (t.Time.IsZero() || !t.Time.Before(p.lastTime())) {
				return nil, fmt.Errorf("the changes after revision %d are missing in the copy, and later ones are there", p.End)
			}
			if t.Revision > p.End {
				return nil, fmt.Errorf("the copy ends at revision %d, before %d", p.End, t.Revision)
			}
			if later != nil && t.Time.After(p.lastTime()) {
				return nil, fmt.Errorf("the copy does not have that moment: it ends at %s and begins again at %s",
					Moment{p.End, p.lastTime()}, Moment{later.Images[0].Revision, later.Images[0].Time})
			}
			return p, nil
		}
		if len(l.Images) > 0 {
			later = l
		}
	}
	first, ok := x.First()
	switch {
	case len(x.Epochs) == 0:
		return nil, ErrEmpty
	case !ok:
		return nil, errors.New("the copy has no image, so nothing of it can be restored")
	}
	return nil, fmt.Errorf("%w: the first one that can be restored is %s", errNoImage, first)
}
