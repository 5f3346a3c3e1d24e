package copies

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUnneeded removes what no moment since a time needs, for each moment of a copy, and restores that moment and all later ones.
func TestUnneeded(t *testing.T) {
	for _, c := range []struct {
		since   int64 // revision
		removed []int // images, segments
	}{
		{1, []int{0, 0}}, {4, []int{0, 0}}, {9, []int{0, 0}}, {10, []int{1, 2}}, {13, []int{1, 2}}, {16, []int{2, 4}}, {100, []int{2, 4}},
	} {
		s := newSample(t, false)
		var want []string
		want = append(append(want, s.images[:c.removed[0]]...), s.segments[:c.removed[1]]...)
		var got []string
		for _, o := range s.index().Unneeded(at(c.since).Time) {
			got = append(got, o.Name)
			s.delete(o.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("since revision %d: %v, want %v", c.since, got, want)
		}
		if _, problems := s.verify(); problems != "" {
			t.Errorf("since revision %d: %s", c.since, problems)
		}
		for _, revision := range []int64{min(max(c.since, 4), 16), 16} {
			if done, err := s.restore(Target{Time: at(revision).Time}); err != nil || done.Revision != revision {
				t.Errorf("since revision %d: restored %d to %+v, %v", c.since, revision, done, err)
			}
		}
		if again := s.index().Unneeded(at(c.since).Time); len(again) > 0 {
			t.Errorf("since revision %d: a second time %v", c.since, again)
		}
	}
}

// TestUnneededLines checks that other lines of history go only when the newest one covers the retention, and that the newest image
// stays.
func TestUnneededLines(t *testing.T) {
	s := newSample(t, false)
	s.put("/f", "x")
	s.image(2)
	began := s.now
	s.segment(2, 17, s.put("/g", "x"))
	if got := s.index().Unneeded(began.Add(-time.Millisecond)); len(got) > 0 {
		t.Errorf("the newest line does not cover the retention, and %v go", got)
	}
	for _, o := range s.index().Unneeded(began.Add(time.Hour)) {
		if !strings.HasPrefix(o.Name, "0000000001/") {
			t.Errorf("%s goes", o.Name)
		}
		s.delete(o.Name)
	}
	if x := s.index(); len(x.Epochs) != 1 || len(x.Epochs[0].Images) != 1 {
		t.Errorf("%+v is left", x.Epochs)
	}
	if done, err := s.restore(Target{}); err != nil || done.Revision != 18 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := newForge(t).index().Unneeded(began); len(got) > 0 {
		t.Errorf("of nothing %v go", got)
	}
}

// TestUnneededOrigins checks that an origin goes when nothing before it is needed, and that drop removes
// the same from the line.
func TestUnneededOrigins(t *testing.T) {
	s := newSample(t, false)
	s.origin(2, 1, 16)
	s.put("/f", "x")
	s.segment(2, 16, 17)
	s.image(2)
	l := s.index().Lines()[0]
	u := l.unneeded(l.Segments, s.now)
	if len(u.objects) != 3+5+1 || u.first.Revision != 17 || !u.others {
		t.Errorf("%+v", u)
	}
	l.drop(u)
	if len(l.Images) != 1 || len(l.Segments) != 0 || len(l.Origins) != 0 {
		t.Errorf("%+v is left", l)
	}
}
