package etcd

import (
	"context"

	"github.com/keelson-dev/keelson/storage"
)

// Part is a store as the user of a range of keys sees it: its watches deliver the
// changes from Lo (inclusive) to Hi (exclusive, "" being no bound) alone, with
// progress of their own. Whatever else is asked of it is asked of the whole store.
// Several parts of one store share its client; closing a Part does nothing.
type Part struct {
	*Store
	Lo, Hi string
}

// Watch implements storage.Store.
func (p Part) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	in := span{prefix, storage.PrefixEnd(prefix)}.and(span{p.Lo, p.Hi})
	return p.watch(ctx, p.keys.span(in.lo, in.hi), from)
}

// Close implements storage.Store.
func (p Part) Close() error { return nil }

// Holds reports whether a key, or all keys with it as their prefix, belong to p.
func (p Part) Holds(key string) bool { return key >= p.Lo && (p.Hi == "" || key < p.Hi) }

// Parts divides the keys so that those with the given prefix have a part of their
// own: what comes before them, they, what comes after.
func (s *Store) Parts(prefix string) []Part {
	end := storage.PrefixEnd(prefix)
	return []Part{{s, "", prefix}, {s, prefix, end}, {s, end, ""}}
}
