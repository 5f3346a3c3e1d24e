package storage

import (
	"context"
	"testing"
)

// A lifetimes is a store with one key, which existed in some spans of revisions. Its value never changed.
type lifetimes struct {
	Store
	spans     [][2]int64 // for each span, the revision of the creation and of the deletion
	now       int64
	compacted int64
	known     int64 // the compaction revision that this process knows
	reads     int
}

func (l *lifetimes) at(revision int64) (e Entry, err error) {
	l.reads++
	if revision < l.compacted {
		if known := l.known; known > revision {
			l.known = l.compacted // the next error has the latest compaction revision
			return e, &CompactedError{Revision: revision, Compacted: known}
		}
		return e, &CompactedError{Revision: revision, Compacted: l.compacted}
	}
	for _, s := range l.spans {
		if s[0] <= revision && revision < s[1] {
			e = Entry{Key: "/a", Value: []byte("x"), ModRevision: s[0], CreateRevision: s[0]}
		}
	}
	return e, nil
}

func (l *lifetimes) Get(_ context.Context, _ string, revision int64) (Entry, int64, error) {
	if revision == 0 {
		revision = l.now
	}
	e, err := l.at(revision)
	return e, revision, err
}

func (l *lifetimes) Range(_ context.Context, r RangeRequest) (result RangeResult, err error) {
	e, err := l.at(r.Revision)
	if e.ModRevision != 0 {
		result.Count = 1
	}
	return result, err
}

// TestReadVersionsAfterOthersCompacted: a server that does not know the last compaction still finds the version
// that existed at the compaction revision.
func TestReadVersionsAfterOthersCompacted(t *testing.T) {
	l := &lifetimes{spans: [][2]int64{{100, 8510}}, now: 10_000, compacted: 8500, known: 8000}
	list, more, err := ReadVersions(t.Context(), l, VersionsRequest{Key: "/a", Limit: 10})
	if err != nil || more || len(list) != 2 || !list[0].Deleted || list[0].Entry.ModRevision != 8510 || list[1].Entry.ModRevision != 100 {
		t.Errorf("%+v, %v, %v", list, more, err)
	}
}

// TestReadVersionsIsBounded: if a key was deleted very often, one call returns only a part of its versions.
func TestReadVersionsIsBounded(t *testing.T) {
	l := &lifetimes{now: 1_001_000, compacted: 1, known: 1}
	for at := int64(1000); at < l.now; at += 2000 {
		l.spans = append(l.spans, [2]int64{at, at + 1000})
	}
	for before, all := int64(0), 0; ; {
		l.reads = 0
		list, more, err := ReadVersions(t.Context(), l, VersionsRequest{Key: "/a", Before: before, Limit: 500})
		if err != nil || l.reads > 2*maxProbes {
			t.Fatalf("%d reads, %v", l.reads, err)
		}
		all += len(list)
		if !more {
			if all != 2*len(l.spans) {
				t.Errorf("%d versions, want %d", all, 2*len(l.spans))
			}
			return
		}
		before = list[len(list)-1].Entry.ModRevision
	}
}
