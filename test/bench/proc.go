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

// usage is what a tree of processes has used.
type usage struct {
	cpu time.Duration // user and system
	// anonymous is the resident memory that belongs to the processes alone, in bytes:
	// heap and stacks. What is mapped of files (the program, a database) is not in it:
	// the system keeps it as long as it has nothing better to do with the memory.
	anonymous int64
	// binary is the size of the largest program file among the processes, in bytes.
	binary int64
}

// treeUsage returns the usage of a process and all that descend from it. It is
// zero where there is no /proc.
func treeUsage(pid int) usage {
	if pid == 0 {
		return usage{}
	}
	type process struct {
		parent int
		usage  usage
	}
	all := map[int]process{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// The second field is the command in parentheses and may have spaces.
		f := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		const parent, utime, stime, cutime, cstime = 1, 11, 12, 13, 14
		if len(f) <= cstime {
			continue
		}
		number := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n } // the kernel writes numbers
		folder := filepath.Dir(path)
		id, _ := strconv.Atoi(filepath.Base(folder)) // the pattern asks for digits
		all[id] = process{int(number(parent)), usage{
			// With that of children that have ended, so that the sum never shrinks.
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

// anonymousMemory is the resident memory of a process less the pages that it shares
// with files or other processes, in bytes; folder is that of the process in /proc.
func anonymousMemory(folder string) int64 {
	content, err := os.ReadFile(filepath.Join(folder, "statm"))
	if err != nil {
		return 0 // ended meanwhile
	}
	// size resident shared ..., in pages
	const resident, shared = 1, 2
	f := strings.Fields(string(content))
	if len(f) <= shared {
		return 0
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n } // the kernel writes numbers
	return (number(resident) - number(shared)) * int64(os.Getpagesize())
}

// programSize is the size of the file that a process runs, in bytes; 0 where it may not
// be looked at.
func programSize(folder string) int64 {
	info, err := os.Stat(filepath.Join(folder, "exe"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// machineBusy is how long the processors of the machine were busy since it started.
func machineBusy() time.Duration {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(content), "\n")
	// cpu user nice system idle iowait irq softirq steal ...
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
