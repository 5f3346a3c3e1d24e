package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/test/history"
)

// TestPlantedBugs checks that servers with a fault are found. The fault is in the disk, between cache and store, or in
// the responses; the checks must name the promise that it breaks.
func TestPlantedBugs(t *testing.T) {
	for _, bug := range []struct {
		name   string
		breaks error
		plant  func(m *machine)
	}{
		{"the disk says that it has synced and has not", history.ErrDurable, func(m *machine) {
			m.losesAll = true // otherwise opening the store would report the incomplete log
			m.drive = func(fs vfs.FS) vfs.FS { return lyingFS{fs} }
		}},
		{"the store comes back as it was some time ago", history.ErrRevision, func(m *machine) {
			var old atomic.Pointer[vfs.MemFS]
			m.drive = func(fs vfs.FS) vfs.FS {
				// At each start, so that on a slow machine it happens at least once that much is lost.
				if disk := old.Swap(nil); disk != nil {
					m.disk, fs = disk, disk
				}
				disk := m.disk
				time.AfterFunc(50*time.Millisecond, func() { old.Store(disk.CrashClone(vfs.CrashCloneCfg{})) })
				return fs
			}
		}},
		{"the store's watch drops an event", history.ErrReliable, func(m *machine) {
			m.store = func(s storage.Store) storage.Store { return &faultyStore{Store: s, drop: 7} }
		}},
		{"the cache does not wait for what was acknowledged", history.ErrLinearizable, func(m *machine) {
			m.store = func(s storage.Store) storage.Store { return &faultyStore{Store: s, behind: 3} }
		}},
		{"an event is sent twice", history.ErrUnique, func(m *machine) {
			m.around = edited(everyThird(func(e string) []string { return []string{e, e} }))
		}},
		{"an event is not sent", history.ErrReliable, func(m *machine) {
			m.around = edited(everyThird(func(string) []string { return nil }))
		}},
		{"two events change places", history.ErrOrdered, func(m *machine) {
			m.around = edited(func() func(string) []string {
				held, n := "", 0
				return func(e string) []string {
					if held != "" {
						e, held = e+held, ""
						return []string{e}
					}
					if n++; n%3 == 0 {
						held = e
						return nil
					}
					return []string{e}
				}
			})
		}},
		{"a bookmark comes too early", history.ErrBookmarkable, func(m *machine) {
			m.around = edited(everyThird(func(e string) []string {
				var event struct {
					Object struct {
						Metadata struct{ ResourceVersion string }
					}
				}
				if err := json.Unmarshal([]byte(e), &event); err != nil {
					return []string{e}
				}
				mark := fmt.Sprintf(
					`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s"}}}`, event.Object.Metadata.ResourceVersion,
				)
				return []string{mark + "\n", e}
			}))
		}},
		{"a deletion carries another state", history.ErrPrevious, func(m *machine) {
			m.around = edited(func() func(string) []string {
				return func(e string) []string {
					if strings.HasPrefix(e, `{"type":"DELETED"`) {
						e = strings.Replace(e, `"data":{"v":"`, `"data":{"v":"old`, 1)
					}
					return []string{e}
				}
			})
		}},
		{"leaving a selection is not sent", history.ErrFiltered, func(m *machine) {
			m.around = edited(func() func(string) []string {
				return func(e string) []string {
					return []string{strings.Replace(e, `{"type":"DELETED"`, `{"type":"MODIFIED"`, 1)}
				}
			})
		}},
		{"a selector is overlooked", history.ErrFiltered, func(m *machine) {
			m.around = asked(func(q url.Values) { q.Del("labelSelector") })
		}},
		{"a watch begins later than it was asked to", history.ErrReliable, func(m *machine) {
			m.around = asked(func(q url.Values) { shift(q, 5) })
		}},
		{"a watch begins earlier than it was asked to", history.ErrResumable, func(m *machine) {
			m.around = asked(func(q url.Values) { shift(q, -5) })
		}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			bug.plant(m)
			m.s.Patience = 5 * time.Second // the check waits this long for the last event, which some faults drop
			m.start()
			m.s.Begin(true)
			var found error
			for m.s.Round = range 40 {
				m.round(4, 2, 200*time.Millisecond, nil)
				if found = errors.Join(found, m.s.Check()); errors.Is(found, bug.breaks) {
					return
				}
			}
			if found = errors.Join(found, m.s.End()); !errors.Is(found, bug.breaks) {
				t.Errorf("found %.2000v, want %v", found, bug.breaks)
			}
		})
	}
}

// lyingFS is a file system whose syncs do nothing.
type lyingFS struct{ vfs.FS }

func (f lyingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	return f.wrap(name, file, err)
}

func (f lyingFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	return f.wrap(newname, file, err)
}

// wrap affects only the files of the log, because a store whose other files are missing cannot be opened.
func (f lyingFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return lyingFile{file}, nil
}

func (f lyingFS) Unwrap() vfs.FS { return f.FS }

type lyingFile struct{ vfs.File }

func (lyingFile) Sync() error                { return nil }
func (lyingFile) SyncData() error            { return nil }
func (lyingFile) SyncTo(int64) (bool, error) { return true, nil }

// faultyStore is a store with a fault.
type faultyStore struct {
	storage.Store
	drop   int   // if not 0, each watch drops one of so many events
	behind int64 // how much the reported revision is too low
}

func (s *faultyStore) Revision(ctx context.Context) (int64, error) {
	r, err := s.Store.Revision(ctx)
	return max(r-s.behind, 1), err
}

func (s *faultyStore) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := s.Store.Watch(ctx, prefix, from)
	if err != nil {
		return nil, err
	}
	return &faultyWatcher{Watcher: w, s: s}, nil
}

type faultyWatcher struct {
	storage.Watcher
	s *faultyStore
	n int
}

func (w *faultyWatcher) Next(ctx context.Context) (storage.Batch, error) {
	if w.s.behind > 0 {
		time.Sleep(5 * time.Millisecond) // the event is on its way
	}
	b, err := w.Watcher.Next(ctx)
	if w.s.drop == 0 {
		return b, err
	}
	var kept []storage.Event
	for _, e := range b.Events {
		if w.n++; w.n%w.s.drop != 0 {
			kept = append(kept, e)
		}
	}
	b.Events = kept
	return b, err
}

// everyThird changes every third event of a watch.
func everyThird(edit func(string) []string) func() func(string) []string {
	return func() func(string) []string {
		n := 0
		return func(e string) []string {
			if n++; n%3 == 0 {
				return edit(e)
			}
			return []string{e}
		}
	}
}

// edited changes the events of watches before the client gets them. It calls editor once for each watch.
func edited(editor func() func(string) []string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				w = &editingWriter{ResponseWriter: w, edit: editor()}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// editingWriter changes lines.
type editingWriter struct {
	http.ResponseWriter
	edit func(string) []string
	mu   sync.Mutex // guards rest
	rest []byte     // the beginning of an incomplete line
}

func (w *editingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *editingWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		for _, line := range w.edit(string(w.rest[:i+1])) {
			if _, err := w.ResponseWriter.Write([]byte(line)); err != nil {
				return 0, err
			}
		}
		w.rest = w.rest[i+1:]
	}
}

// asked changes the parameters of watch requests.
func asked(change func(url.Values)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if q := r.URL.Query(); q.Get("watch") != "" {
				change(q)
				r = r.Clone(r.Context())
				r.URL.RawQuery = q.Encode()
			}
			next.ServeHTTP(w, r)
		})
	}
}

// shift changes the revision at which a watch begins.
func shift(q url.Values, by int64) {
	var from int64
	if _, err := fmt.Sscan(q.Get("resourceVersion"), &from); err == nil && from > 5 {
		q.Set("resourceVersion", fmt.Sprint(from+by))
	}
}
