package hostile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// measuring is true if usageOf works on this system.
const measuring = true

// clockTick is the unit of the times in /proc/PID/stat (USER_HZ, 100 on every
// architecture that Go runs on).
const clockTick = 10 * time.Millisecond

// usage is the resource usage of a process as counted by the kernel.
type usage struct {
	cpu       time.Duration // user and system, since the process started
	anonymous int64         // bytes of resident anonymous memory
	resident  int64         // bytes of resident memory
	peak      int64         // the largest value of resident since resetPeak
}

// usageOf returns the usage of a process.
func usageOf(pid int) (usage, error) {
	var u usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The second field is the command in parentheses, which may contain spaces.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return u, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	for _, f := range fields[utime : stime+1] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ticks) * clockTick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		number := strings.TrimSuffix(strings.TrimSpace(value), " kB")
		kilobytes, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue // not a line with a number
		}
		switch name {
		case "RssAnon":
			u.anonymous = kilobytes << 10
		case "VmRSS":
			u.resident = kilobytes << 10
		case "VmHWM":
			u.peak = kilobytes << 10
		}
	}
	return u, nil
}

// resetPeak sets the peak of a process to its current resident memory.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
