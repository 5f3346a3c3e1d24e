package pace

import (
	"bufio"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookEvery is how often the process looks at how busy it is. One that used less
	// than idleCPU since is idle.
	lookEvery = time.Second
	idleCPU   = lookEvery / 40
	// An idle process collects its garbage to give the memory back, at most every
	// freeEvery, and longer apart the more is live: a mebibyte takes about a
	// millisecond to mark.
	freeEvery       = 2 * time.Second
	freeForMebibyte = 50 * time.Millisecond
)

// Trim gives memory back whenever the process becomes idle: the pages of the
// program's file that are in memory, most of which are of code and tables that
// starting or a burst of requests has used (one that is needed again comes back from
// the system's cache), and what the heap has grown by.
func Trim() {
	go func() {
		idle := false
		var freed time.Time
		for used := cpuTime(); ; used = cpuTime() {
			time.Sleep(lookEvery)
			was := idle
			if idle = cpuTime()-used < idleCPU; !idle || was {
				continue
			}
			if time.Since(freed) > pause(liveHeap()) {
				debug.FreeOSMemory()
				freed = time.Now()
			}
			trim()
		}
	}()
}

// pause is the least time between two collections of an idle process.
func pause(live uint64) time.Duration {
	return max(freeEvery, time.Duration(live>>20)*freeForMebibyte)
}

func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: liveMetric}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
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
