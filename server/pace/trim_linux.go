package pace

import (
	"bufio"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// trimAfter is how long after the start the program's own pages are first let go: by
// then what only starting needs has been read. trimEvery is how often it is done
// again, if the process used less than idleCPU meanwhile.
const (
	trimAfter = 3 * time.Second
	trimEvery = time.Minute
	idleCPU   = time.Second
)

// Trim lets go of the pages of the program's file that are in memory, soon after the
// start and whenever the process has been idle: most of them are of code and tables
// that are not used again. A page that is comes back from the system's cache.
func Trim() {
	time.AfterFunc(trimAfter, func() {
		used := trim()
		for {
			time.Sleep(trimEvery)
			if cpuTime()-used < idleCPU {
				trim()
			}
			used = cpuTime()
		}
	})
}

// trim lets the pages go, and returns the CPU time used so far.
func trim() time.Duration {
	for _, span := range programSpans() {
		_ = unix.Madvise(span, unix.MADV_DONTNEED) // it is only advice
	}
	return cpuTime()
}

func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// programSpans are the parts of the address space that map the program's file and
// hold nothing but what is in it. What the linker wrote at the start (relocations,
// made read-only afterwards) would be lost.
func programSpans() [][]byte {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	return cleanSpans(maps, program)
}

// cleanSpans reads /proc/self/smaps: a line for a mapping, and lines of what is in it.
func cleanSpans(maps io.Reader, program string) [][]byte {
	var spans [][]byte
	var span []byte // of the mapping that the lines are about; nil is not ours
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		name, value, isProperty := strings.Cut(lines.Text(), ": ")
		switch {
		case !isProperty:
			span = programSpan(lines.Text(), program)
		case name == "Anonymous" && span != nil && strings.TrimSpace(value) == "0 kB":
			spans = append(spans, span)
		}
	}
	return spans
}

// programSpan is the memory of a mapping of the program's file that cannot be written
// to, nil for another one.
func programSpan(line, program string) []byte {
	fields := strings.Fields(line)
	const fewest = 6
	if len(fields) < fewest || fields[5] != program || strings.Contains(fields[1], "w") {
		return nil
	}
	return spanOf(fields[0])
}
