package pace

import (
	"testing"
	"testing/fstest"
)

// TestReadMemory reads the files of some systems.
func TestReadMemory(t *testing.T) {
	const meminfo = "MemTotal:       1048576 kB\nMemFree:         4 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  Memory
	}{
		"no files": {nil, Memory{}},
		"no limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n",
		}, Memory{Machine: 1 << 30}},
		"version 2, a limit above": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "268435456\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n",
		}, Memory{1 << 30, 256 << 20}},
		"in a container the group is the root": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n",
		}, Memory{1 << 30, 256 << 20}},
		"version 1": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,memory:/docker/x\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "134217728\n",
		}, Memory{1 << 30, 128 << 20}},
		"version 1 without a limit": {map[string]string{
			"proc/self/cgroup": "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, Memory{}},
		"more than the machine has": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2147483648\n",
		}, Memory{Machine: 1 << 30}},
		"text": {map[string]string{"proc/meminfo": "MemTotal", "proc/self/cgroup": "0\n1:x\n0::relative\n"}, Memory{}},
	} {
		root := fstest.MapFS{}
		for path, content := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(content)}
		}
		if got := ReadMemory(root); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if n := (Memory{Machine: 1 << 30, Limit: 256 << 20}).Usable(); n != 256<<20 {
		t.Errorf("usable %d", n)
	}
	if n := (Memory{}).Usable(); n != 0 {
		t.Errorf("usable %d though nothing is known", n)
	}
}
