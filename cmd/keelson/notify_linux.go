package main

import (
	"fmt"
	"syscall"
	"unsafe"
)

// monotonic returns the line with the time of a reload that systemd requires of services of the type notify-reload.
func monotonic() string {
	const clockMonotonic = 1 // CLOCK_MONOTONIC of clock_gettime(2)
	var t syscall.Timespec
	if _, _, e := syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0, //nolint:gosec // as the system call wants it
	); e != 0 {
		return ""
	}
	return fmt.Sprintf("\nMONOTONIC_USEC=%d", t.Nano()/1000)
}
