package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage/changelog"
)

// spans are the lengths of time whose segments are merged into one when they have passed.
var spans = []time.Duration{30 * time.Second, 5 * time.Minute, time.Hour}

const (
	// A new image pays when the segments since the last one have more bytes than it and than minImageBytes, because a restore reads
	// them all; or after imageAge, if anything has changed.
	minImageBytes = 64 << 20
	imageAge      = 24 * time.Hour
)

// maintain does one piece of maintenance: it removes segments that a merged one replaces, or merges segments, or writes an image, or
// removes what is older than the retention.
func (s *Shipper) maintain(ctx context.Context) error {
	for _, do := range []func(context.Context) (bool, error){s.removeParts, s.merge, s.renewImage, s.expire} {
		if did, err := do(ctx); did || err != nil {
			return err
		}
	}
	return nil
}

// removeParts removes segments of which another one has all changes.
func (s *Shipper) removeParts(ctx context.Context) (did bool, err error) {
	e := s.epoch
	for i := 0; i < len(e.Segments); i++ {
		part := e.Segments[i]
		if !slices.ContainsFunc(e.Segments, func(o Segment) bool {
			return o.Object.Name != part.Object.Name && o.After <= part.After && o.Through >= part.Through
		}) {
			continue
		}
		if err := s.Bucket.Delete(ctx, part.Object.Name); err != nil {
			return true, err
		}
		e.Segments, did = slices.Delete(e.Segments, i, i+1), true
		i--
	}
	return did, nil
}

// merge merges the segments of one length of time that has passed.
func (s *Shipper) merge(ctx context.Context) (bool, error) {
	for _, span := range spans {
		if list := s.mergeable(span); len(list) > 1 {
			return true, s.mergeSegments(ctx, list)
		}
	}
	return false, nil
}

// mergeable returns the first segments that follow each other and end in the same length of time, which has passed.
func (s *Shipper) mergeable(span time.Duration) (list []Segment) {
	slot := func(x Segment) int64 { return x.Last.UnixMilli() / span.Milliseconds() }
	now := s.Now().UnixMilli() / span.Milliseconds()
	for _, x := range s.epoch.Segments {
		if n := len(list); n > 0 && list[n-1].Through == x.After && slot(list[0]) == slot(x) && s.readable(x) {
			list = append(list, x)
			continue
		}
		if len(list) > 1 {
			return list
		}
		list = list[:0]
		if !x.Last.IsZero() && slot(x) < now && s.readable(x) {
			list = append(list, x)
		}
	}
	return list
}

// readable reports whether this process can read a segment. It has no keys for those that another process has encrypted.
func (s *Shipper) readable(x Segment) bool { return !x.Encrypted() || x.own }

// open decrypts an object that this process has written.
func (s *Shipper) open(r io.Reader) (io.Reader, error) { return age.Decrypt(r, s.own) }

// mergeSegments writes a segment with the changes of segments that follow each other. Their objects are removed by removeParts.
func (s *Shipper) mergeSegments(ctx context.Context, list []Segment) error {
	first, last := list[0], list[len(list)-1]
	merged, err := s.writeSegment(ctx, changelog.Name{After: first.After, Through: last.Through, Last: last.Last}, func(w *changelog.Writer) error {
		for _, part := range list {
			if err := readSegment(ctx, s.Bucket, part, s.open, w.Write); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("merging the changes of revisions %d to %d: %w", first.After+1, last.Through, err)
	}
	i := slices.IndexFunc(s.epoch.Segments, func(x Segment) bool { return x.After >= first.After })
	s.epoch.Segments = slices.Insert(s.epoch.Segments, i, merged)
	return nil
}

// renewImage writes an image when it pays.
func (s *Shipper) renewImage(ctx context.Context) (bool, error) {
	last := s.epoch.Images[len(s.epoch.Images)-1]
	since := int64(0)
	for _, x := range s.epoch.Segments {
		if x.Through > last.Revision {
			since += x.Size
		}
	}
	if since == 0 || since <= max(last.Size, s.imageBytes) && s.Now().Sub(last.Time) < imageAge {
		return false, nil
	}
	return true, s.writeImage(ctx, s.epoch)
}

// expire removes what no state of the retention needs: images before the newest one that is older, the segments before it, and
// earlier epochs if there is such an image.
func (s *Shipper) expire(ctx context.Context) (did bool, err error) {
	oldest := s.Now().Add(-s.Retention)
	e := s.epoch
	keep := 0
	for i, image := range e.Images {
		if !image.Time.After(oldest) {
			keep = i
		}
	}
	var remove []Object
	for _, image := range e.Images[:keep] {
		remove = append(remove, image.Object)
	}
	for _, x := range e.Segments {
		if x.Through <= e.Images[keep].Revision {
			remove = append(remove, x.Object)
		}
	}
	if !e.Images[keep].Time.After(oldest) && !s.earlierGone {
		x, err := ReadIndex(ctx, s.Bucket)
		if err != nil {
			return false, err
		}
		for _, earlier := range x.Epochs {
			if earlier.Number >= e.Number {
				continue
			}
			for _, image := range earlier.Images {
				remove = append(remove, image.Object)
			}
			for _, x := range earlier.Segments {
				remove = append(remove, x.Object)
			}
		}
		defer func() { s.earlierGone = err == nil }()
	}
	for _, o := range remove {
		if err := s.Bucket.Delete(ctx, o.Name); err != nil {
			return true, err
		}
	}
	first := e.Images[keep].Revision
	e.Images = e.Images[keep:]
	e.Segments = slices.DeleteFunc(e.Segments, func(x Segment) bool { return x.Through <= first })
	return len(remove) > 0, nil
}

// errOtherSegment is the error of an object whose content is not what its name says.
var errOtherSegment = errors.New("its content is that of another segment")

// readSegment calls each for the transactions of a segment, and verifies it. It ends early if each returns io.EOF.
func readSegment(
	ctx context.Context, b Bucket, x Segment, open func(io.Reader) (io.Reader, error), each func(changelog.Transaction) error,
) (err error) {
	in, err := b.Get(ctx, x.Object.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", x.Object.Name, err)
	}
	defer in.Close()
	defer func() {
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s: %w", x.Object.Name, err)
		}
	}()
	content := io.Reader(in)
	if x.Encrypted() {
		if content, err = open(in); err != nil {
			return err
		}
	}
	r, err := changelog.NewReader(content)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Header().After != x.After {
		return errOtherSegment
	}
	for {
		t, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = errors.Join(ctx.Err(), each(t))
		}
		if err != nil {
			return err
		}
	}
	if r.Totals().Through != x.Through {
		return errOtherSegment
	}
	return nil
}
