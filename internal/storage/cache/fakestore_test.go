package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/keelson-dev/keelson/internal/storage"
)

// fakeStore is a store in memory. A test can hold its watches or break them.
type fakeStore struct {
	mu        sync.Mutex
	revision  int64
	compacted int64
	versions  map[string][]storage.Entry // ascending; a deletion has no CreateRevision
	written   []storage.Event
	moved     chan struct{} // closed when anything below changes
	held      bool          // while true, watchers receive nothing
	broken    int           // watchers made before this generation fail
	made      int
	closed    bool
	ranges    int
}

func newFakeStore() *fakeStore {
	return &fakeStore{revision: 1, versions: make(map[string][]storage.Entry), moved: make(chan struct{})}
}

func (s *fakeStore) move() {
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *fakeStore) at(key string, revision int64) storage.Entry {
	versions := s.versions[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].ModRevision <= revision {
			if versions[i].CreateRevision == 0 {
				break
			}
			return versions[i]
		}
	}
	return storage.Entry{}
}

func (s *fakeStore) readable(revision int64) (int64, error) {
	switch {
	case s.closed:
		return 0, storage.ErrClosed
	case revision == 0:
		return s.revision, nil
	case revision < s.compacted:
		return 0, &storage.CompactedError{Revision: revision, Compacted: s.compacted}
	case revision > s.revision:
		return 0, &storage.FutureRevisionError{Revision: revision, Current: s.revision}
	}
	return revision, nil
}

func (s *fakeStore) Get(_ context.Context, key string, revision int64) (storage.Entry, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, err := s.readable(revision)
	return s.at(key, revision), revision, err
}

func (s *fakeStore) Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranges++
	revision, err := s.readable(r.Revision)
	if err != nil {
		return storage.RangeResult{}, err
	}
	result := storage.RangeResult{Revision: revision}
	for key := range s.versions {
		if key >= r.Start && (r.End == "" || key < r.End) {
			if e := s.at(key, revision); e.ModRevision != 0 {
				result.Entries = append(result.Entries, e)
			}
		}
	}
	slices.SortFunc(result.Entries, func(a, b storage.Entry) int { return strings.Compare(a.Key, b.Key) })
	result.Count = int64(len(result.Entries))
	if r.CountOnly && r.Uncounted && r.Limit > 0 && len(result.Entries) > r.Limit {
		result.Count, result.More = int64(r.Limit), true
	}
	if r.CountOnly {
		result.Entries = nil
	}
	if r.Limit > 0 && len(result.Entries) > r.Limit {
		result.Entries, result.More = result.Entries[:r.Limit], true
	}
	return result, nil
}

func (s *fakeStore) Commit(_ context.Context, txn storage.Txn) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, storage.ErrClosed
	}
	for _, c := range txn.Conditions {
		if e := s.at(c.Key, s.revision); e.ModRevision != c.ModRevision {
			return 0, &storage.ConflictError{Condition: c, Current: e, Revision: s.revision}
		}
	}
	next := s.revision + 1
	for _, op := range txn.Ops {
		prev := s.at(op.Key, s.revision)
		e := storage.Entry{Key: op.Key, ModRevision: next}
		if op.Delete {
			if prev.ModRevision == 0 {
				continue
			}
		} else {
			e.Value, e.CreateRevision = op.Value, next
			if prev.ModRevision != 0 {
				e.CreateRevision = prev.CreateRevision
			}
		}
		s.revision = next
		s.versions[op.Key] = append(s.versions[op.Key], e)
		s.written = append(s.written, storage.Event{Entry: e, Deleted: op.Delete, Prev: prev})
	}
	s.move()
	return s.revision, nil
}

func (s *fakeStore) Revision(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readable(0)
}

func (s *fakeStore) Compact(_ context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = max(s.compacted, revision)
	return nil
}

func (s *fakeStore) Stats() storage.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return storage.Stats{Revision: s.revision, CompactedRevision: s.compacted}
}

func (s *fakeStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.move()
	return nil
}

// hold stops the delivery to watchers, or with false, continues it.
func (s *fakeStore) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.move()
}

// breakWatches ends the open watches with an error of no special type.
func (s *fakeStore) breakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = s.made
	s.move()
}

func (s *fakeStore) Watch(_ context.Context, prefix string, from int64) (storage.Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, storage.ErrClosed
	}
	if from == 0 {
		from = s.revision + 1
	}
	if from <= s.compacted {
		return nil, &storage.CompactedError{Revision: from, Compacted: s.compacted}
	}
	s.made++
	return &fakeWatcher{store: s, prefix: prefix, from: from, number: s.made}, nil
}

type fakeWatcher struct {
	store  *fakeStore
	prefix string
	from   int64
	number int
	closed bool
}

var errBroken = errors.New("the line is dead")

func (w *fakeWatcher) Next(ctx context.Context) (storage.Batch, error) {
	for {
		s := w.store
		s.mu.Lock()
		var err error
		switch {
		case s.closed || w.closed:
			err = storage.ErrClosed
		case w.number <= s.broken:
			err = errBroken
		case w.from <= s.compacted:
			err = &storage.CompactedError{Revision: w.from, Compacted: s.compacted}
		}
		if err != nil {
			s.mu.Unlock()
			return storage.Batch{}, err
		}
		if w.from <= s.revision && !s.held {
			b := storage.Batch{Revision: s.revision}
			i, _ := slices.BinarySearchFunc(
				s.written, w.from, func(e storage.Event, r int64) int { return int(e.Entry.ModRevision - r) },
			)
			for _, e := range s.written[i:] {
				if len(b.Events) >= 50 && e.Entry.ModRevision > b.Revision {
					break
				}
				if strings.HasPrefix(e.Entry.Key, w.prefix) {
					b.Events = append(b.Events, e)
				}
				if len(b.Events) >= 50 {
					b.Revision = e.Entry.ModRevision
				}
			}
			w.from = b.Revision + 1
			s.mu.Unlock()
			return b, nil
		}
		moved := s.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return storage.Batch{}, ctx.Err()
		}
	}
}

func (w *fakeWatcher) Close() error {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.closed = true
	return nil
}

// fakeCodec reads values of the format "node|color|payload"; the data of an object is "revision:value". node is the
// indexed field, color a label.
type fakeCodec struct{}

var errUnreadable = errors.New("unreadable")

func (fakeCodec) Read(key string, value []byte, revision int64) (Header, error) {
	parts := strings.SplitN(string(value), "|", 3)
	if len(parts) != 3 {
		return Header{}, errUnreadable
	}
	return Header{
		Labels: []Label{{"color", parts[1]}},
		Fields: parts[:1:1],
		Data:   fmt.Appendf(nil, "%d:%s", revision, value),
	}, nil
}

func (fakeCodec) Restamp(data []byte, revision int64) ([]byte, error) {
	_, value, _ := strings.Cut(string(data), ":")
	return fmt.Appendf(nil, "%d:%s", revision, value), nil
}
