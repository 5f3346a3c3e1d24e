//go:build !unix

package main

import "os"

// columnsOf returns 0: the width of a terminal is only found on Unix.
func columnsOf(*os.File) int { return 0 }
