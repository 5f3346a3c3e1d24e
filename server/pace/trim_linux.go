package pace

import (
	"bufio"
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
// are never written.
func programSpans() [][]byte {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	var spans [][]byte
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if span := programSpan(lines.Text(), program); span != nil {
			spans = append(spans, span)
		}
	}
	return spans
}

// programSpan is the memory of a line of /proc/self/maps, nil for one that is not of
// the program's file or may be written.
func programSpan(line, program string) []byte {
	fields := strings.Fields(line)
	const fewest = 6
	if len(fields) < fewest || fields[5] != program || strings.Contains(fields[1], "w") {
		return nil
	}
	return spanOf(fields[0])
}
