package etcd

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// BenchmarkCreate measures creates of 1 KiB, with 64 in flight, on one member with one watch.
func BenchmarkCreate(b *testing.B) {
	for _, synced := range []bool{true, false} {
		b.Run(fmt.Sprintf("fsync=%v", synced), func(b *testing.B) {
			c := start(b, 1, func(config *embed.Config) { config.UnsafeNoFsync = !synced })
			s := c.open(b, etcd.Options{})
			w, err := s.Watch(b.Context(), "/k/", 0)
			if err != nil {
				b.Fatal(err)
			}
			var follow sync.WaitGroup
			follow.Go(func() {
				for n := 0; n < b.N; {
					batch, err := w.Next(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					n += len(batch.Events)
				}
			})
			value := make([]byte, 1024)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range 64 {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						key := fmt.Sprintf("/k/%d", n)
						_, err := s.Commit(
							b.Context(),
							storage.Txn{Conditions: []storage.Condition{{Key: key}}, Ops: []storage.Op{storage.Put(key, value)}},
						)
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			follow.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
		})
	}
}

// BenchmarkRevision measures consistent reads of the current revision, with 64 in flight.
func BenchmarkRevision(b *testing.B) {
	s := start(b, 1, nil).open(b, etcd.Options{})
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Revision(b.Context()); err != nil {
				b.Error(err)
			}
		}
	})
}
