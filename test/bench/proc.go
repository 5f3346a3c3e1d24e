package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat (USER_HZ, 100 on every
// architecture that Go runs on).
const clockTick = 10 * time.Millisecond

// usage is the resource usage of a process and its descendants.
type usage struct {
	cpu time.Duration // user and system
	// anonymous is the resident memory that belongs only to the processes (heap and stacks), in bytes. Memory that is
	// mapped from files (the program, a database) is not included: the system can free it whenever it needs memory.
	anonymous int64
	// binary is the size of the largest program file of the processes, in bytes.
	binary int64
}

// treeUsage returns the usage of a process and all its descendants. It is zero on systems without /proc.
func treeUsage(pid int) usage {
	if pid == 0 {
		return usage{}
	}
	type process struct {
		parent int
		usage  usage
	}
	all := map[int]process{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended in the meantime
		}
		// The second field is the command in parentheses, which may contain spaces.
		f := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		const parent, utime, stime, cutime, cstime = 1, 11, 12, 13, 14
		if len(f) <= cstime {
			continue
		}
		number := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n } // the kernel writes numbers
		folder := filepath.Dir(path)
		id, _ := strconv.Atoi(filepath.Base(folder)) // the pattern selects numbers
		all[id] = process{int(number(parent)), usage{
			// The times of children that have ended are included, so that the sum never shrinks.
			cpu:       time.Duration(number(utime)+number(stime)+number(cutime)+number(cstime)) * clockTick,
			anonymous: anonymousMemory(folder), binary: programSize(folder),
		}}
	}
	var sum usage
	for id, p := range all {
		for up, depth := id, 0; up > 0 && depth < len(all); up, depth = all[up].parent, depth+1 {
			if up == pid {
				sum.cpu += p.usage.cpu
				sum.anonymous += p.usage.anonymous
				sum.binary = max(sum.binary, p.usage.binary)
				break
			}
		}
	}
	return sum
}

// anonymousMemory returns the resident memory of a process without the pages that it shares with files or other
// processes, in bytes. folder is the process's folder in /proc.
func anonymousMemory(folder string) int64 {
	content, err := os.ReadFile(filepath.Join(folder, "statm"))
	if err != nil {
		return 0 // it has ended in the meantime
	}
	// The fields are size, resident, shared and others, in pages.
	const resident, shared = 1, 2
	f := strings.Fields(string(content))
	if len(f) <= shared {
		return 0
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n } // the kernel writes numbers
	return (number(resident) - number(shared)) * int64(os.Getpagesize())
}

// programSize returns the size of the file that a process runs, in bytes, or 0 if it cannot be read.
func programSize(folder string) int64 {
	info, err := os.Stat(filepath.Join(folder, "exe"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// machineBusy returns the time for which the processors of the machine were busy since it was started.
func machineBusy() time.Duration {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(content), "\n")
	// The fields are: cpu user nice system idle iowait irq softirq steal and others.
	const idle, iowait, last = 4, 5, 8
	var ticks int64
	for i, f := range strings.Fields(line) {
		if i == 0 || i == idle || i == iowait || i > last {
			continue
		}
		n, _ := strconv.ParseInt(f, 10, 64) // the kernel writes numbers
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
