package pace

import (
	"strconv"
	"strings"
	"unsafe"
)

// spanOf is the memory of an address range as /proc/self/maps writes it.
func spanOf(addresses string) []byte {
	low, high, ok := strings.Cut(addresses, "-")
	if !ok {
		return nil
	}
	from, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return nil
	}
	to, err := strconv.ParseUint(high, 16, 64)
	if err != nil || to <= from {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), uintptr(from))), to-from) //nolint:gosec // it is mapped
}
