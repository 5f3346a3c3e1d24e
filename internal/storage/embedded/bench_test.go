package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/keelson-dev/keelson/internal/storage"
)

// BenchmarkCommit creates keys from 64 goroutines. BenchmarkPebbleCommit, in comparison, writes the same bytes as
// synced Pebble batches, one per key, which Pebble groups by itself.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{300, 2500} {
		b.Run(fmt.Sprintf("create/%dB", size), func(b *testing.B) {
			s := mustOpen(b, Options{Dir: b.TempDir()})
			parallel(b, 64, func(i int64) error {
				key := fmt.Sprintf("/registry/configmaps/default/name-%010d", i)
				_, err := s.Commit(context.Background(), storage.Txn{
					Conditions: []storage.Condition{{Key: key}},
					Ops:        []storage.Op{storage.Put(key, compressibleBytes(size, i))},
				})
				return err
			})
		})
		b.Run(fmt.Sprintf("update/%dB", size), func(b *testing.B) {
			const keys = 10_000
			s := mustOpen(b, Options{Dir: b.TempDir()})
			fill(b, s, keys, size)
			parallel(b, 64, func(i int64) error {
				key := fmt.Sprintf("/registry/pods/default/name-%010d", i*7919%keys)
				_, err := s.Commit(
					context.Background(), storage.Txn{Ops: []storage.Op{storage.Put(key, compressibleBytes(size, i))}},
				)
				return err
			})
		})
	}
	b.Run("create/300B/1000watchers", func(b *testing.B) {
		s := mustOpen(b, Options{Dir: b.TempDir()})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range 1000 {
			w, err := s.Watch(ctx, fmt.Sprintf("/registry/other/%0*d/", i%20+1, i), 0)
			if err != nil {
				b.Fatal(err)
			}
			wg.Go(func() {
				for {
					if _, err := w.Next(ctx); err != nil {
						w.Close()
						return
					}
				}
			})
		}
		parallel(b, 64, func(i int64) error {
			key := fmt.Sprintf("/registry/configmaps/default/name-%010d", i)
			_, err := s.Commit(ctx, storage.Txn{
				Conditions: []storage.Condition{{Key: key}},
				Ops:        []storage.Op{storage.Put(key, compressibleBytes(300, i))},
			})
			return err
		})
		cancel()
		wg.Wait()
	})
	b.Run("create/300B/one", func(b *testing.B) {
		s := mustOpen(b, Options{Dir: b.TempDir()})
		parallel(b, 1, func(i int64) error {
			_, err := s.Commit(
				context.Background(),
				storage.Txn{Ops: []storage.Op{storage.Put(fmt.Sprintf("/k/%d", i), compressibleBytes(300, i))}},
			)
			return err
		})
	})
}

func BenchmarkPebbleCommit(b *testing.B) {
	for _, size := range []int{300, 2500} {
		b.Run(fmt.Sprintf("pebble/%dB", size), func(b *testing.B) {
			o := (&Options{Dir: b.TempDir()}).withDefaults()
			db, err := pebble.Open(o.Dir, o.pebbleOptions(nil, nil))
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			parallel(b, 64, func(i int64) error {
				return db.Set(
					fmt.Appendf(nil, "/registry/configmaps/default/name-%010d", i), compressibleBytes(size, i), pebble.Sync,
				)
			})
		})
	}
	b.Run("fdatasync", func(b *testing.B) {
		f, err := os.Create(b.TempDir() + "/f")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		block := bytes.Repeat([]byte("x"), 32<<10)
		for i := 0; b.Loop(); i++ {
			if _, err := f.WriteAt(block, int64(i%512)<<15); err != nil {
				b.Fatal(err)
			}
			if err := fdatasync(f); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkGet(b *testing.B) {
	s := mustOpen(b, Options{Dir: b.TempDir()})
	fill(b, s, 20_000, 2500)
	if err := s.db.Flush(); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"pods", "absent"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				key := "/registry/" + name + "/default/name-" + fmt.Sprintf("%010d", i*7919%20_000)
				if _, _, err := s.Get(context.Background(), key, 0); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkRange(b *testing.B) {
	const keys = 20_000
	s := mustOpen(b, Options{Dir: b.TempDir()})
	fill(b, s, keys, 2500)
	for _, bench := range []struct {
		name string
		r    storage.RangeRequest
	}{
		{"all", storage.RangeRequest{}},
		{"limit500", storage.RangeRequest{Limit: 500}},
		{"count", storage.RangeRequest{CountOnly: true}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := s.Range(context.Background(), bench.r)
				if err != nil || r.Count != keys {
					b.Fatal(r.Count, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
		})
	}
}

func BenchmarkOpenEmpty(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		s, err := Open(testOptions(Options{Dir: dir, FS: vfs.Default}))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}

// BenchmarkIdleMemory reports the resident memory of the whole test process with one idle store.
func BenchmarkIdleMemory(b *testing.B) {
	before := residentBytes(b)
	s := mustOpen(b, Options{Dir: b.TempDir()})
	for b.Loop() {
	}
	runtime.GC()
	b.ReportMetric(float64(residentBytes(b)-before)/1e6, "MB-added")
	b.ReportMetric(float64(residentBytes(b))/1e6, "MB-resident")
	s.Close()
}

func residentBytes(b *testing.B) int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("no /proc")
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// parallel runs b.N operations from workers goroutines and reports operations per
// second.
func parallel(b *testing.B, workers int, op func(i int64) error) {
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := op(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// compressibleBytes returns a value that compresses about as well as API objects do.
func compressibleBytes(size int, seed int64) []byte {
	b := make([]byte, 0, size+32)
	for x := uint64(seed)*0x9e3779b97f4a7c15 + 1; len(b) < size; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = append(b, "field-name: "...)
		b = strconv.AppendUint(b, x, 36)
	}
	return b[:size]
}

func fill(b *testing.B, s *Store, keys, size int) {
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < keys && errs[w] == nil; i += 16 {
				key := fmt.Sprintf("/registry/pods/default/name-%010d", i)
				_, errs[w] = s.Commit(
					context.Background(), storage.Txn{Ops: []storage.Op{storage.Put(key, compressibleBytes(size, int64(i)))}},
				)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}
