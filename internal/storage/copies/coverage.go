package copies

import (
	"fmt"
	"time"
)

// Moment is a state that a store had: after the change of a revision, until the next one.
type Moment struct {
	Revision int64
	Time     time.Time // of the change, to the millisecond
}

// TimeFormat is the format of the times of a copy in messages: RFC 3339 in UTC, with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

func (m Moment) String() string {
	return fmt.Sprintf("%s (revision %d)", m.Time.UTC().Format(TimeFormat), m.Revision)
}

// Span is a part of a line of history, of which all moments can be restored.
type Span struct{ First, Last Moment }

// Coverage is what a line of history has.
type Coverage struct {
	Epochs []int64 // in descending order
	// Spans are the moments that can be restored, in ascending order. Normally there is one. Several mean that changes in between are
	// missing, and none that there is no image.
	Spans            []Span
	Images, Segments int
	Bytes            int64 // the size of its objects
	Encrypted        bool  // at least one object is encrypted
}

// Coverage returns what the line has, by the names of its objects.
func (l *Line) Coverage() Coverage {
	c := Coverage{Epochs: l.Epochs, Images: len(l.Images), Segments: len(l.Segments)}
	end := int64(0)
	for _, image := range l.Images {
		c.Bytes, c.Encrypted = c.Bytes+image.Size, c.Encrypted || encrypted(image.Object)
		if image.Revision <= end {
			continue // the segments since an older image lead to it
		}
		s := l.spanOf(image)
		c.Spans, end = append(c.Spans, s), s.Last.Revision
	}
	for _, x := range l.Segments {
		c.Bytes, c.Encrypted = c.Bytes+x.Size, c.Encrypted || encrypted(x.Object)
	}
	return c
}

// spanOf returns the moments from an image on. If only a part of the last segment counts, the time of its last change that counts is
// not in its name: the time before it is returned then.
func (l *Line) spanOf(image Image) Span {
	s := Span{First: Moment{image.Revision, image.Time}, Last: Moment{image.Revision, image.Time}}
	list, end := l.chain(image.Revision, 0)
	s.Last.Revision = end
	for _, x := range list {
		if x.Until == x.Through && !x.Last.IsZero() { // it has changes
			s.Last.Time = x.Last
		}
	}
	return s
}

// Highest returns the highest revision of all objects in the copy, also of those that are in no line of history. Clients of the servers
// that have written the copy may have seen it.
func (x *Index) Highest() (revision int64) {
	for _, e := range x.Epochs {
		for _, image := range e.Images {
			revision = max(revision, image.Revision)
		}
		for _, s := range e.Segments {
			revision = max(revision, s.Through)
		}
	}
	return revision
}

// First returns the first moment that can be restored; ok is false if there is no image.
func (x *Index) First() (first Moment, ok bool) {
	for _, l := range x.Lines() {
		for _, image := range l.Images {
			if !ok || image.Time.Before(first.Time) {
				first, ok = Moment{image.Revision, image.Time}, true
			}
		}
	}
	return first, ok
}
