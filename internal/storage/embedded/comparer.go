package embedded

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// comparer orders keys by their bytes. It splits a version key after its first zero byte, so that Bloom filters contain
// keys, not versions, and an iterator can step from key to key. The order of prefixes agrees with the order of keys: of
// two prefixes that end in their only zero byte, none is a proper prefix of the other.
//
// The name is stored in every data directory. Another order needs another name.
var comparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "keelson.versions.1"
	c.Split = splitKey
	c.ImmediateSuccessor = nextPrefix
	return &c
}()

// splitKey returns the length of the prefix of k for Bloom filters: up to and including the first zero byte of a
// version key, and all of k for other keys.
func splitKey(k []byte) int {
	if len(k) > 0 && k[0] == prefixVersion {
		if i := bytes.IndexByte(k, 0); i >= 0 {
			return i + 1
		}
	}
	return len(k)
}

// nextPrefix appends the smallest prefix that is greater than the prefix a to dst. The only zero byte of the prefix of
// a version key is its last one, and the next prefix has 1 there.
func nextPrefix(dst, a []byte) []byte {
	dst = append(dst, a...)
	if n := len(a) - 1; n > 0 && a[0] == prefixVersion && a[n] == 0 {
		dst[len(dst)-1] = 1
		return dst
	}
	return append(dst, 0)
}
