package hostile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// measuring says that usageOf works here.
const measuring = true

// clockTick is the unit of the times in /proc/PID/stat (USER_HZ, 100 on every
// architecture that Go runs on).
const clockTick = 10 * time.Millisecond

// usage is what a process uses, as the kernel counts it.
type usage struct {
	cpu       time.Duration // user and system, since the process started
	anonymous int64         // bytes of anonymous memory that are resident
	resident  int64         // bytes that are resident
	peak      int64         // the most that was resident since resetPeak
}

// usageOf reads the usage of a process.
func usageOf(pid int) (usage, error) {
	var u usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The second field is the command in parentheses and may have spaces.
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
			continue // a line of another form
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

// resetPeak makes the present resident memory of a process its peak.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
