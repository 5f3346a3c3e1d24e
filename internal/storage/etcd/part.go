package etcd

import (
	"context"

	"github.com/keelson-dev/keelson/internal/storage"
)

// Part is a store whose watches are limited to a range of keys: they deliver the changes from Lo (inclusive) to Hi
// (exclusive, "" means no bound), and have their own progress. All other methods use the entire store. Several parts of
// one store share its client. Closing a Part has no effect.
type Part struct {
	*Store
	Lo, Hi string
}

// Watch implements storage.Store.
func (p Part) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	in := span{prefix, storage.PrefixEnd(prefix)}.intersect(span{p.Lo, p.Hi})
	return asWatcher(p.watch(ctx, p.keys.span(in.lo, in.hi), from, false))
}

// Close implements storage.Store.
func (p Part) Close() error { return nil }

// Contains reports whether a key belongs to p. If a prefix is passed that Parts was called with, it reports
// whether all keys with this prefix belong to p.
func (p Part) Contains(key string) bool { return key >= p.Lo && (p.Hi == "" || key < p.Hi) }

// Parts divides the keys of API objects into three parts: the keys before the given prefix, the keys with this prefix, and the
// keys after them.
func (s *Store) Parts(prefix string) []Part {
	end := storage.PrefixEnd(prefix)
	return []Part{{s, recordKey + "\x00", prefix}, {s, prefix, end}, {s, end, ""}} // each transaction writes recordKey
}
