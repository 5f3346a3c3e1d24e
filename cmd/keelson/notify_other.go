//go:build !linux

package main

// monotonic returns "", because systemd runs only on Linux.
func monotonic() string { return "" }
