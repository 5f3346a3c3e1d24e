package main

import (
	"os"
	"runtime/debug"
	"syscall"
	"testing"
)

// TestTreeUsageOfItself compares the reported usage of this process with what the process knows itself.
func TestTreeUsageOfItself(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if got := treeUsage(os.Getpid()).binary; got != info.Size() {
		t.Errorf("the program has %d bytes, want %d", got, info.Size())
	}
}

// TestAnonymousMemory writes to memory, which counts, and reads a mapped file, which does not count.
func TestAnonymousMemory(t *testing.T) {
	const size = 32 << 20
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // the file was only read
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	mapped := mapMemory(t, int(file.Fd()), size, syscall.PROT_READ, syscall.MAP_SHARED)
	memory := mapMemory(t, -1, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	debug.FreeOSMemory() // what other tests have used is not given back while this one measures
	before, sum := treeUsage(os.Getpid()).anonymous, 0
	for i := 0; i < size; i += os.Getpagesize() {
		sum += int(mapped[i])
	}
	read := treeUsage(os.Getpid()).anonymous
	if read-before > size/2 {
		t.Errorf("anonymous memory grew by %d bytes when a file of %d was read (sum %d)", read-before, size, sum)
	}
	for i := 0; i < size; i += os.Getpagesize() {
		memory[i] = 1
	}
	if written := treeUsage(os.Getpid()).anonymous; written-read < size/2 {
		t.Errorf("anonymous memory grew by %d bytes when %d were written to", written-read, size)
	}
}

// mapMemory maps a file or anonymous memory until the test ends.
func mapMemory(t *testing.T, file, size, protection, flags int) []byte {
	t.Helper()
	mapped, err := syscall.Mmap(file, 0, size, protection, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mapped); err != nil {
			t.Error(err)
		}
	})
	return mapped
}
