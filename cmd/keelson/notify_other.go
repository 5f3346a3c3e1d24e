//go:build !linux

package main

// monotonic returns nothing: systemd runs on Linux only.
func monotonic() string { return "" }
