package copies

import (
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/bucket"
)

// unneeded is what no moment of a retention needs.
type unneeded struct {
	objects []bucket.Object // of the line
	first   Image           // the oldest image that is left
	// others is true if no other line of history is needed either, because the whole retention is in this one.
	others bool
}

// unneeded returns what no moment since oldest needs: the images before the newest one that is not younger than oldest, and the segments
// and origins before that image. The line has an image, and keeps at least one. segments are those of the line.
func (l *Line) unneeded(segments []Segment, oldest time.Time) (u unneeded) {
	keep := 0
	for i, image := range l.Images {
		if !image.Time.After(oldest) {
			keep = i
		}
	}
	u.first = l.Images[keep]
	u.others = !u.first.Time.After(oldest)
	for _, image := range l.Images[:keep] {
		u.objects = append(u.objects, image.Object)
	}
	for _, x := range segments {
		if x.Until <= u.first.Revision {
			u.objects = append(u.objects, x.Object)
		}
	}
	for _, o := range l.Origins {
		if o.Revision < u.first.Revision {
			u.objects = append(u.objects, o.Object)
		}
	}
	return u
}

// drop removes from the line what was removed from the bucket.
func (l *Line) drop(u unneeded) {
	l.Images = slices.DeleteFunc(l.Images, func(i Image) bool { return slices.Contains(u.objects, i.Object) })
	l.Segments = slices.DeleteFunc(l.Segments, func(x Segment) bool { return slices.Contains(u.objects, x.Object) })
	l.Origins = slices.DeleteFunc(l.Origins, func(o Origin) bool { return slices.Contains(u.objects, o.Object) })
}

// Unneeded returns the objects that no moment since oldest needs, by the rule by which a Shipper removes them, in the order in which
// they have to be removed. The newest image always stays. A Shipper may write to the copy meanwhile.
func (x *Index) Unneeded(oldest time.Time) []bucket.Object {
	lines := x.Lines()
	if len(lines) == 0 || len(lines[0].Images) == 0 {
		return nil
	}
	u := lines[0].unneeded(lines[0].Segments, oldest)
	if u.others {
		others, _ := x.outside(lines[0], oldest)
		u.objects = append(u.objects, others...)
	}
	return u.objects
}
