package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/storage/bucket"
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

// maintain does one piece of maintenance, if there is one to do: it removes segments that a merged one replaces, or merges segments, or
// writes an image, or removes what is older than the retention.
func (s *Shipper) maintain(ctx context.Context) (did bool, err error) {
	l := s.current()
	switch {
	case l == nil:
		return false, nil
	case len(l.Images) == 0:
		return s.firstImage(ctx, l)
	}
	for _, do := range []func(context.Context, *Line) (bool, error){s.removeParts, s.merge, s.renewImage, s.expire} {
		if did, err = do(ctx, l); did || err != nil {
			break
		}
	}
	if err != nil {
		s.forget() // perhaps the bucket does not have what the line has
	}
	return did, err
}

// firstImage writes the image with which a line begins.
func (s *Shipper) firstImage(ctx context.Context, l *Line) (bool, error) {
	image, err := s.writeImage(ctx, l)
	if err != nil {
		s.forget()
		return true, err
	}
	s.mu.Lock()
	l.Images = append(l.Images, image)
	same, position := s.line == l, s.position
	s.mu.Unlock()
	if same {
		s.reached(l, position, s.Store.Stats().WrittenBytes)
	}
	return true, nil
}

// segments returns the segments of a line as they are now.
func (s *Shipper) segments(l *Line) []Segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(l.Segments)
}

// removeParts removes segments of which another one has all changes.
func (s *Shipper) removeParts(ctx context.Context, l *Line) (did bool, err error) {
	list := s.segments(l)
	for _, part := range list {
		if !slices.ContainsFunc(list, func(o Segment) bool {
			return o.Object.Name != part.Object.Name && o.After <= part.After && o.Until >= part.Until
		}) {
			continue
		}
		if err := s.writer.remove(ctx, l.Epochs[0], part.Object); err != nil {
			return true, err
		}
		did = true
		list = slices.DeleteFunc(slices.Clone(list), func(o Segment) bool { return o.Object.Name == part.Object.Name })
		s.mu.Lock()
		l.Segments = slices.DeleteFunc(l.Segments, func(o Segment) bool { return o.Object.Name == part.Object.Name })
		s.mu.Unlock()
	}
	return did, nil
}

// merge merges the segments of one length of time that has passed.
func (s *Shipper) merge(ctx context.Context, l *Line) (bool, error) {
	for _, span := range spans {
		if list := s.mergeable(l, span); len(list) > 1 {
			return true, s.mergeSegments(ctx, l, list)
		}
	}
	return false, nil
}

// mergeable returns the first segments that follow each other and end in the same length of time, which has passed.
func (s *Shipper) mergeable(l *Line, span time.Duration) (list []Segment) {
	slot := func(x Segment) int64 { return x.Last.UnixMilli() / span.Milliseconds() }
	now := s.Now().UnixMilli() / span.Milliseconds()
	for _, x := range s.segments(l) {
		if n := len(list); n > 0 && list[n-1].Through == x.After && slot(list[0]) == slot(x) && s.writer.readable(x) {
			list = append(list, x)
			continue
		}
		if len(list) > 1 {
			return list
		}
		list = list[:0]
		if !x.Last.IsZero() && slot(x) < now && s.writer.readable(x) {
			list = append(list, x)
		}
	}
	return list
}

// mergeSegments writes a segment with the changes of segments that follow each other. Their objects are removed by removeParts.
func (s *Shipper) mergeSegments(ctx context.Context, l *Line, list []Segment) error {
	first, last := list[0], list[len(list)-1]
	n := changelog.Name{After: first.After, Through: last.Through, Last: last.Last}
	merged, err := s.writer.segment(ctx, l.Epochs[0], n, func(w *changelog.Writer) error {
		p := pace{began: time.Now()}
		for _, part := range list {
			err := openSegment(ctx, s.Bucket, part, s.writer.open, func(r *changelog.Reader) error {
				return w.Append(r, func() error { return p.rest(ctx) })
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("merging the changes of revisions %d to %d: %w", first.After+1, last.Through, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(l.Segments, func(x Segment) bool { return x.After >= first.After })
	l.Segments = slices.Insert(l.Segments, i, merged)
	return nil
}

// pace makes merging use a quarter of a processor, because requests share it and nothing waits for a merge.
type pace struct{ began time.Time }

const (
	workTime     = 5 * time.Millisecond // after which pace rests
	restsForWork = 3                    // how much longer it rests than it has worked
	longestRest  = 50 * time.Millisecond
)

// rest waits if the work goes on for long enough.
func (p *pace) rest(ctx context.Context) error {
	worked := time.Since(p.began)
	if worked < workTime {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(restsForWork*worked, longestRest)):
		p.began = time.Now()
		return nil
	}
}

// renewImage writes an image when it pays.
func (s *Shipper) renewImage(ctx context.Context, l *Line) (bool, error) {
	last := l.Images[len(l.Images)-1]
	since := int64(0)
	for _, x := range s.segments(l) {
		if x.Until > last.Revision {
			since += x.Size
		}
	}
	if since == 0 || since <= max(last.Size, s.imageBytes) && s.Now().Sub(last.Time) < imageAge {
		return false, nil
	}
	image, err := s.writeImage(ctx, l)
	if err != nil {
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.Images = append(l.Images, image)
	return true, nil
}

// expire removes what no state of the retention needs (Line.unneeded).
func (s *Shipper) expire(ctx context.Context, l *Line) (did bool, err error) {
	oldest := s.age(l).Add(-s.Retention)
	u := l.unneeded(s.segments(l), oldest)
	if u.others && !l.alone {
		x, err := ReadIndex(ctx, s.Bucket)
		if err != nil {
			return false, err
		}
		others, all := x.outside(l, oldest)
		u.objects = append(u.objects, others...)
		defer func() { l.alone = err == nil && all }()
	}
	if err := s.writer.remove(ctx, l.Epochs[0], u.objects...); err != nil {
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.drop(u)
	return len(u.objects) > 0, nil
}

// age returns the present time for the retention: the time of the last change when the line was found, and what has passed since then by a
// clock that nobody sets. So if the clock of the machine is set forward, nothing is removed too early.
func (s *Shipper) age(l *Line) time.Time {
	if l.found.IsZero() {
		s.mu.Lock()
		l.found, l.foundAt = l.last(), s.Lock.Since()
		s.mu.Unlock()
	}
	return l.found.Add(s.Lock.Since() - l.foundAt)
}

// outside returns the objects of the lines other than l that have ended before a time, and whether there are no more other lines then.
func (x *Index) outside(l *Line, oldest time.Time) (list []bucket.Object, all bool) {
	all = true
	keep := map[int64]bool{}
	for _, other := range x.Lines() {
		if other.Epochs[0] == l.Epochs[0] || other.last().Before(oldest) && other.Epochs[0] < l.Epochs[0] {
			continue
		}
		all = false
		for _, number := range other.Epochs {
			keep[number] = true
		}
	}
	for _, e := range x.Epochs {
		if keep[e.Number] || slices.Contains(l.Epochs, e.Number) {
			continue
		}
		for _, image := range e.Images {
			list = append(list, image.Object)
		}
		for _, s := range e.Segments {
			list = append(list, s.Object)
		}
		if e.Origin != nil {
			list = append(list, e.Origin.Object)
		}
	}
	return list, all
}

// errOtherSegment is the error of an object whose content is not what its name says.
var errOtherSegment = errors.New("its content is that of another segment")

// readSegment calls each for the transactions of a segment, and verifies it. It ends early if each returns errStop.
func readSegment(
	ctx context.Context, b bucket.Bucket, x Segment, open func(io.Reader) (io.Reader, error), each func(*changelog.Transaction) error,
) (err error) {
	return openSegment(ctx, b, x, open, func(r *changelog.Reader) error { return r.Each(ctx, each) })
}

// openSegment calls read, which reads a segment to its end, unless it fails.
func openSegment(
	ctx context.Context, b bucket.Bucket, x Segment, open func(io.Reader) (io.Reader, error), read func(*changelog.Reader) error,
) (err error) {
	in, err := b.Get(ctx, x.Object.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", x.Object.Name, err)
	}
	defer in.Close()
	defer func() {
		if err != nil && !errors.Is(err, errStop) {
			err = fmt.Errorf("%s: %w", x.Object.Name, err)
		}
	}()
	content := io.Reader(in)
	if encrypted(x.Object) {
		if content, err = open(in); err != nil {
			return err
		}
	}
	r, err := changelog.NewReader(content)
	if err != nil {
		return err
	}
	if r.Header().After != x.After || r.Header().Epoch != x.Epoch {
		return errOtherSegment
	}
	if err := read(r); err != nil {
		return err
	}
	if r.Totals().Through != x.Through {
		return errOtherSegment
	}
	return nil
}
