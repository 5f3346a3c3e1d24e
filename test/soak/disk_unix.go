//go:build unix

package main

import (
	"io/fs"
	"syscall"
)

// bytesOnDisk returns the bytes of the blocks of a file.
func bytesOnDisk(info fs.FileInfo) int64 {
	const block = 512
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * block
	}
	return info.Size()
}
