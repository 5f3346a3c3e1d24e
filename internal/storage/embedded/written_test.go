package embedded

import (
	"context"
	"fmt"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// BenchmarkWritten reports the cost of a stream of writes from 64 goroutines, including merges: the processor
// time, and the bytes that the store writes to its files for each byte of value. The command
//
//	go test ./internal/storage/embedded -run '^$' -bench Written -benchtime 200000x
//
// produced the figures in docs/decisions/0019, there with 100000x.
func BenchmarkWritten(b *testing.B) {
	for _, size := range []int{400, 5000} {
		for _, bench := range []struct {
			name string
			keys int64 // 0: each write creates a key
		}{
			{"create", 0},
			{"update", 10_000},
			{"again", 500}, // updates of keys that were written moments ago
		} {
			b.Run(fmt.Sprintf("%s/%dB", bench.name, size), func(b *testing.B) {
				fs := &countingFS{FS: vfs.Default, written: map[string]int64{}}
				s := mustOpen(b, Options{Dir: b.TempDir(), FS: fs})
				before := processorTime(b)
				parallel(b, 64, func(i int64) error {
					number := i
					if bench.keys > 0 {
						number %= bench.keys
					}
					key := scatteredKey(number)
					txn := storage.Txn{Ops: []storage.Op{storage.Put(key, compressibleBytes(size, i))}}
					if bench.keys == 0 {
						txn.Conditions = []storage.Condition{{Key: key}}
					}
					_, err := s.Commit(context.Background(), txn)
					return err
				})
				waitForIdle(b, s)
				b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
				fs.report(b, float64(b.N)*float64(size))
				b.ReportMetric(float64(s.db.Metrics().DiskSpaceUsage())/float64(b.N)/float64(size), "kept/B")
			})
		}
	}
}

// scatteredKey returns the i-th key. Successive keys are in random order, like generated names.
func scatteredKey(i int64) string {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("/registry/pods/namespace-%02d/name-%013x", x>>32%20, x>>12)
}

// waitForIdle waits until the store has no merge to do.
func waitForIdle(b *testing.B, s *Store) {
	for deadline, quiet := time.Now().Add(time.Minute), 0; quiet < 5; {
		quiet++
		if s.db.Metrics().Compact.NumInProgress > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			b.Fatal("merges did not end within a minute")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// countingFS counts the bytes that are written, by the extension of the file names.
type countingFS struct {
	vfs.FS
	mu      sync.Mutex // guards written
	written map[string]int64
}

func (fs *countingFS) count(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &countedFile{f, fs, path.Ext(name)}, nil
}

func (fs *countingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.count(f, name, err)
}

func (fs *countingFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(old, name, category)
	return fs.count(f, name, err)
}

// report reports the written bytes per byte of value. values is the total size of the values in bytes.
func (fs *countingFS) report(b *testing.B, values float64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	total := int64(0)
	for _, n := range fs.written {
		total += n
	}
	b.ReportMetric(float64(total)/values, "written/B")
	b.ReportMetric(float64(total-fs.written[".log"])/values, "tables/B")
}

type countedFile struct {
	vfs.File
	fs  *countingFS
	ext string
}

func (f *countedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.fs.mu.Lock()
	f.fs.written[f.ext] += int64(n)
	f.fs.mu.Unlock()
	return n, err
}
