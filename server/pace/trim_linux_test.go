package pace

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestTrim lets go of the test's own program and goes on running.
func TestTrim(t *testing.T) {
	spans := programSpans()
	if len(spans) == 0 {
		t.Fatal("the program is not mapped")
	}
	total := 0
	for _, span := range spans {
		total += len(span)
	}
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if int64(total) > info.Size()+int64(len(spans)*os.Getpagesize()) {
		t.Errorf("%d bytes are mapped of a program of %d", total, info.Size())
	}
	if trim() == 0 {
		t.Error("no time was used")
	}
}

// TestWrittenPagesStay keeps a mapping that was written to before it became
// read-only: its pages are not those of the file any more.
func TestWrittenPagesStay(t *testing.T) {
	const maps = "00400000-00402000 r-xp 00000000 08:01 1                          /bin/x\n" +
		"Size:                  8 kB\nAnonymous:             0 kB\nVmFlags: rd ex mr\n" +
		"00402000-00403000 r--p 00002000 08:01 1                          /bin/x\n" +
		"Size:                  4 kB\nAnonymous:             4 kB\nVmFlags: rd mr\n" +
		"00403000-00409000 r--p 00002000 08:01 1                          /lib/y\n" +
		"Size:                 24 kB\nAnonymous:             0 kB\n"
	spans := cleanSpans(strings.NewReader(maps), "/bin/x")
	if len(spans) != 1 || len(spans[0]) != 0x2000 {
		t.Errorf("%d spans: want the first mapping alone", len(spans))
	}
}

func TestProgramSpan(t *testing.T) {
	const program = "/bin/x"
	for line, want := range map[string]int{
		"00400000-00402000 r-xp 00000000 08:01 1 /bin/x": 0x2000,
		"00400000-00402000 r--p 00000000 08:01 1 /bin/x": 0x2000,
		"00400000-00402000 rw-p 00000000 08:01 1 /bin/x": 0, // written to: its pages would be lost
		"00400000-00402000 r-xp 00000000 08:01 1 /bin/y": 0,
		"7ffc0000-7ffc1000 r-xp 00000000 00:00 0 [vdso]": 0,
		"00402000-00400000 r-xp 00000000 08:01 1 /bin/x": 0,
		"zz-00402000 r-xp 00000000 08:01 1 /bin/x":       0,
		"00400000-00402000 r-xp 00000000 00:00 0":        0,
	} {
		if got := len(programSpan(line, program)); got != want {
			t.Errorf("%s: %d bytes, want %d", line, got, want)
		}
	}
}

func TestPause(t *testing.T) {
	for live, want := range map[uint64]time.Duration{0: freeEvery, 10 << 20: freeEvery, 80 << 20: 4 * time.Second, 2 << 30: 102400 * time.Millisecond} {
		if got := pause(live); got != want {
			t.Errorf("%d MiB live: %v, want %v", live>>20, got, want)
		}
	}
	runtime.GC()
	if liveHeap() == 0 {
		t.Error("nothing is live")
	}
}
