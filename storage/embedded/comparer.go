package embedded

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// comparer orders keys by their bytes and splits a version key after its first
// zero byte, so that Bloom filters are over keys, not versions, and an iterator
// can step from key to key. Byte order agrees with the split: two prefixes that
// end in their only zero byte are never proper prefixes of each other.
//
// Its name is in every data directory; another order needs another name.
var comparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "keelson.versions.1"
	c.Split = splitKey
	c.ImmediateSuccessor = nextPrefix
	return &c
}()

func splitKey(k []byte) int {
	if len(k) > 0 && k[0] == spaceVersion {
		if i := bytes.IndexByte(k, 0); i >= 0 {
			return i + 1
		}
	}
	return len(k)
}

// nextPrefix appends the smallest prefix above the prefix a. What splits at a zero
// byte has none before, so the next one replaces it.
func nextPrefix(dst, a []byte) []byte {
	dst = append(dst, a...)
	if n := len(a) - 1; n > 0 && a[0] == spaceVersion && a[n] == 0 {
		dst[len(dst)-1] = 1
		return dst
	}
	return append(dst, 0)
}
