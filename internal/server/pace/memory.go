package pace

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Memory has the limits of the memory that a process may use, in bytes.
type Memory struct {
	Machine int64 // the memory of the machine; 0 if unknown
	Limit   int64 // the limit of the control groups of the process; 0 if there is none
}

// ReadMemory reads from files below /proc and /sys how much memory this process may use. root is the root directory of the
// system. On other systems than Linux the files do not exist, and the result is zero.
func ReadMemory(root fs.FS) Memory {
	m := Memory{Machine: machineMemory(root)}
	for _, group := range controlGroups(root) {
		for ; ; group.dir = path.Dir(group.dir) {
			name := path.Join(group.mount, group.dir, group.file)
			if n, ok := readNumber(root, name); ok && (m.Limit == 0 || n < m.Limit) {
				m.Limit = n
			}
			if group.dir == "/" {
				break
			}
		}
	}
	// Version 1 of control groups has a very large number for "no limit".
	if m.Limit >= m.Machine && m.Machine > 0 || m.Limit > math.MaxInt64/2 {
		m.Limit = 0
	}
	return m
}

// Usable returns the least of three limits: the memory of the machine, the limit of the control groups, and the
// memory limit of the Go runtime. It is 0 if none of them is known.
func (m Memory) Usable() int64 {
	least := int64(math.MaxInt64)
	for _, n := range []int64{m.Machine, m.Limit, debug.SetMemoryLimit(-1)} {
		if n > 0 {
			least = min(least, n)
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// controlGroup is a control group of this process. Its directory is dir below mount. Its file with the name file
// has the limit.
type controlGroup struct{ mount, dir, file string }

// controlGroups returns the control groups that limit the memory of this process, of both versions.
func controlGroups(root fs.FS) (groups []controlGroup) {
	content, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	// A line is ID:controllers:path; version 2 has an empty list of controllers.
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			switch controller {
			case "":
				groups = append(groups, controlGroup{"sys/fs/cgroup", fields[2], "memory.max"})
			case "memory":
				groups = append(groups, controlGroup{"sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"})
			}
		}
	}
	return groups
}

func readNumber(root fs.FS, name string) (int64, bool) {
	content, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64)
	return n, err == nil && n > 0 // "max" is no limit
}

// machineMemory returns MemTotal of /proc/meminfo, in bytes. The file has it in KiB.
func machineMemory(root fs.FS) int64 {
	content, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) >= 2 && f[0] == "MemTotal:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}
