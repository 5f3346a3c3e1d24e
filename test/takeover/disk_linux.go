package takeover

import "syscall"

func mount(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=200m") }

func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
