package copies

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// at returns the moment of a revision of a sample.
func at(revision int64) Moment {
	return Moment{revision, time.UnixMilli(1_700_000_000_000 + (revision-1)*1000)}
}

func TestCoverage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *sample)
		want   []Span
	}{
		"as it was written":        {func(*sample) {}, []Span{{at(4), at(16)}}},
		"a segment is missing":     {func(s *sample) { s.delete(s.segments[1]) }, []Span{{at(4), at(7)}, {at(10), at(16)}}},
		"the end is missing":       {func(s *sample) { s.delete(s.segments[3]) }, []Span{{at(4), at(13)}, {at(16), at(16)}}},
		"the first image is gone":  {func(s *sample) { s.delete(s.images[0]) }, []Span{{at(10), at(16)}}},
		"a merge was interrupted":  {func(s *sample) { s.segment(1, 4, 13) }, []Span{{at(4), at(16)}}},
		"a segment has no changes": {func(s *sample) { s.segmentOf(1, 1, 16, 20, nil) }, []Span{{at(4), Moment{20, at(16).Time}}}},
		"no image": {func(s *sample) {
			for _, name := range s.images {
				s.delete(name)
			}
		}, nil},
	} {
		s := newSample(t, false)
		c.change(s)
		x := s.index()
		got := x.Lines()[0].Coverage()
		if len(got.Spans) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got.Spans, c.want)
			continue
		}
		size := int64(0)
		for _, l := range x.Lines() {
			for _, image := range l.Images {
				size += image.Size
			}
			for _, s := range l.Segments {
				size += s.Size
			}
		}
		for i, want := range c.want {
			if got := got.Spans[i]; got.First.String() != want.First.String() || got.Last.String() != want.Last.String() {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		if got.Encrypted || got.Bytes != size || got.Images != len(x.Epochs[0].Images) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if c := newSample(t, true).index().Lines()[0].Coverage(); !c.Encrypted {
		t.Error("an encrypted copy is not encrypted")
	}
}

// TestHighest checks that changes which do not count are above nothing that is restored.
func TestHighest(t *testing.T) {
	s := newSample(t, false)
	s.origin(2, 1, 13)
	s.put("/x", "x")
	s.segment(1, 16, 17)
	x := s.index()
	if _, end := x.Lines()[0].chain(4, 0); end != 13 {
		t.Fatalf("the line ends at %d", end)
	}
	if got := x.Highest(); got != 17 {
		t.Errorf("the highest revision is %d", got)
	}
}

func TestPlanFor(t *testing.T) {
	s := newSample(t, false)
	for _, early := range []Target{{Revision: 3}, {Time: at(3).Time}} {
		_, err := s.index().Plan(early)
		if !errors.Is(err, errNoImage) || !strings.HasSuffix(err.Error(), "is 2023-11-14T22:13:23.000Z (revision 4)") {
			t.Errorf("%+v: %v", early, err)
		}
	}
	if p, err := s.index().Plan(Target{Time: at(100).Time}); err != nil || p.End != 16 {
		t.Errorf("in the future: %+v, %v", p, err)
	}
	if p, err := s.index().Plan(Target{Revision: 12}); err != nil || p.Image.Revision != 10 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, name := range s.images {
		s.delete(name)
	}
	if _, err := s.index().Plan(Target{}); err == nil || !strings.Contains(err.Error(), "has no image") {
		t.Errorf("without an image: %v", err)
	}
	if _, err := newForge(t).index().Plan(Target{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("an empty bucket: %v", err)
	}
}
