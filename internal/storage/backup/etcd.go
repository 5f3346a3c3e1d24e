package backup

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup/etcdfile"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// root is the beginning of all keys of a store.
const root = "/registry"

// longestTTL is the longest time to live in seconds: etcd grants no longer leases. It is low enough that the
// computation of a deadline does not overflow.
const longestTTL = 9_000_000_000

// EtcdOptions control how an etcd snapshot is read.
type EtcdOptions struct {
	// Prefix is the beginning of the API server's keys in etcd, such as /registry.
	Prefix string
	// SkipHash accepts a file without a SHA-256 at its end.
	SkipHash bool
	Restore  RestoreOptions
}

// ImportEtcd creates a store with the keys of an etcd snapshot that are below the prefix. others is the number of other
// keys.
func ImportEtcd(
	ctx context.Context, path string, o embedded.Options, eo EtcdOptions,
) (out Restored, others int64, err error) {
	prefix, err := cleanPrefix(eo.Prefix)
	if err != nil {
		return out, 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return out, 0, err
	}
	f, err := etcdfile.Open(path, prefix+"/", eo.SkipHash)
	if err != nil {
		return out, 0, err
	}
	defer f.Close()
	if f.Len() == 0 {
		return out, 0, fmt.Errorf("it has no keys below %s/ (and %d others)", prefix, f.Others())
	}
	// The file does not contain the time at which it was written, so its modification time is used.
	s := source{revision: f.Revision(), created: info.ModTime(), entries: f.Len()}
	if eo.Restore.KeepRevisions || s.created.After(eo.Restore.Now) {
		s.created = eo.Restore.Now
	}
	s.records = func(yield func(embedded.Record, error) bool) {
		for e, err := range f.Entries() {
			r := embedded.Record{Entry: storage.Entry{
				Key: root + strings.TrimPrefix(e.Key, prefix), Value: e.Value, CreateRevision: e.CreateRevision,
				ModRevision: e.ModRevision,
			}}
			if e.TTL > 0 {
				r.Deadline = s.created.UnixMilli() + min(e.TTL, longestTTL)*1000
			}
			if !yield(r, err) {
				return
			}
		}
	}
	out, err = s.restore(ctx, o, eo.Restore)
	return out, f.Others(), err
}

// ExportEtcd writes the state to an etcd snapshot at path, which must be empty or missing. Remaining times to live
// are computed from now. It returns the number of keys.
func ExportEtcd(ctx context.Context, path, prefix string, e *embedded.Export, now time.Time) (n int64, err error) {
	if prefix, err = cleanPrefix(prefix); err != nil {
		return 0, err
	}
	var entries iter.Seq2[etcdfile.Entry, error] = func(yield func(etcdfile.Entry, error) bool) {
		for r, err := range e.Records(ctx) {
			out := etcdfile.Entry{Key: r.Key, Value: r.Value, CreateRevision: r.CreateRevision, ModRevision: r.ModRevision}
			if rest, ok := strings.CutPrefix(r.Key, root+"/"); ok {
				out.Key = prefix + "/" + rest
			}
			if r.Deadline != 0 {
				out.TTL = min(max((r.Deadline-now.UnixMilli()+999)/1000, 1), longestTTL)
			}
			n++
			if !yield(out, err) {
				return
			}
		}
	}
	err = etcdfile.Write(path, e.Revision(), entries)
	return n, err
}

// cleanPrefix returns prefix without slashes at its end. It must begin with a slash.
func cleanPrefix(prefix string) (string, error) {
	clean := strings.TrimRight(prefix, "/")
	if !strings.HasPrefix(clean, "/") {
		return "", fmt.Errorf("the prefix must be a path such as %s, not %q", root, prefix)
	}
	return clean, nil
}
