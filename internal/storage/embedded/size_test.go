package embedded

import (
	"context"
	"fmt"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage"
)

// BenchmarkSize compares a store of 10,000 keys with one of 1,000,000, half of them with values of 0.5 KB and half with
// 5 KB. Its files take about 2.5 GB while it runs.
func BenchmarkSize(b *testing.B) {
	for _, keys := range []int64{10_000, 1_000_000} {
		o := Options{Dir: b.TempDir()}
		s := mustOpen(b, o)
		fillSizes(b, s, keys)
		created := keys
		b.Run(fmt.Sprintf("create/%d", keys), func(b *testing.B) {
			before := processorTime(b)
			first := created
			created += int64(b.N)
			parallel(b, 64, func(i int64) error {
				key := scatteredKey(first + i)
				_, err := s.Commit(context.Background(), storage.Txn{
					Conditions: []storage.Condition{{Key: key}},
					Ops:        []storage.Op{storage.Put(key, compressibleBytes(500, i))},
				})
				return err
			})
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		waitForIdle(b, s)
		b.Run(fmt.Sprintf("get/%d", keys), func(b *testing.B) {
			before := processorTime(b)
			for i := int64(0); b.Loop(); i++ {
				e, _, err := s.Get(context.Background(), scatteredKey(i*7919%keys), 0)
				if err != nil || e.ModRevision == 0 {
					b.Fatal(e.ModRevision, err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		b.Run(fmt.Sprintf("page/%d", keys), func(b *testing.B) {
			for i := int64(0); b.Loop(); i++ {
				page := storage.RangeRequest{
					Start: fmt.Sprintf("/registry/pods/namespace-%02d/", i%20), Limit: 500, Uncounted: true,
				}
				if r, err := s.Range(context.Background(), page); err != nil || len(r.Entries) != 500 && i%20 < 19 {
					b.Fatal(len(r.Entries), err)
				}
			}
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("open/%d", keys), func(b *testing.B) {
			for b.Loop() {
				s, err := Open(testOptions(o))
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// fillSizes creates keys, in transactions of 100.
func fillSizes(b *testing.B, s *Store, keys int64) {
	for at := int64(0); at < keys; {
		var txn storage.Txn
		for ; len(txn.Ops) < 100 && at < keys; at++ {
			txn.Ops = append(txn.Ops, storage.Put(scatteredKey(at), compressibleBytes(500+int(at%2)*4500, at)))
		}
		if _, err := s.Commit(context.Background(), txn); err != nil {
			b.Fatal(err)
		}
	}
	waitForIdle(b, s)
}
