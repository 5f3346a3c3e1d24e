package pace

import (
	"runtime"
	"testing"
	"time"
)

// TestFreer is a transcript: what the process has allocated at each second, and
// whether it frees memory then.
func TestFreer(t *testing.T) {
	const mebibyte = 1 << 20
	var f freer
	start := time.Unix(1000, 0)
	for _, step := range []struct {
		second    int
		allocated uint64
		live      uint64
		want      bool
		because   string
	}{
		{1, 50 * mebibyte, 10 * mebibyte, false, "the start has allocated much: busy"},
		{2, 50 * mebibyte, 10 * mebibyte, true, "nothing was allocated since: idle, with garbage"},
		{3, 50 * mebibyte, 10 * mebibyte, false, "no garbage since the last time"},
		{4, 53 * mebibyte, 10 * mebibyte, false, "busy"},
		{5, 53*mebibyte + 1000, 10 * mebibyte, false, "idle, but 3 MiB of garbage are too few"},
		{6, 60 * mebibyte, 10 * mebibyte, false, "busy"},
		{7, 60 * mebibyte, 10 * mebibyte, true, "idle, with 10 MiB of garbage"},
		{8, 70 * mebibyte, 10 * mebibyte, false, "busy"},
		{8, 70 * mebibyte, 10 * mebibyte, false, "idle, but freed a second ago"},
		{9, 70 * mebibyte, 10 * mebibyte, true, "idle, freed two seconds ago"},
		{200, 100 * mebibyte, 1024 * mebibyte, false, "busy"},
		{201, 100 * mebibyte, 1024 * mebibyte, false, "30 MiB of garbage are few beside 1 GiB"},
		{202, 150 * mebibyte, 1024 * mebibyte, false, "busy"},
		{203, 150 * mebibyte, 1024 * mebibyte, true, "80 MiB are enough"},
	} {
		now, h := start.Add(time.Duration(step.second)*time.Second), heap{allocated: step.allocated, live: step.live}
		got := f.shouldFree(now, h)
		if got != step.want {
			t.Errorf("second %d: free %v, want %v: %s", step.second, got, step.want, step.because)
		}
		if got {
			f.freed(now, h)
		}
	}
}

func TestPause(t *testing.T) {
	const mebibyte = 1 << 20
	for _, c := range []struct {
		live, garbage uint64 // MiB
		want          time.Duration
	}{
		{0, 100, minFreePause}, {10, 4, minFreePause}, {80, 5, 4 * time.Second}, {80, 20, minFreePause},
		{2048, 128, 102400 * time.Millisecond}, {2048, 512, 25600 * time.Millisecond},
	} {
		if got := pause(c.live*mebibyte, c.garbage*mebibyte); got != c.want {
			t.Errorf("%d MiB live, %d of garbage: %v, want %v", c.live, c.garbage, got, c.want)
		}
	}
}

func TestReadHeap(t *testing.T) {
	before := readHeap()
	garbage := make([]byte, 1<<20)
	if after := readHeap(); after.allocated-before.allocated < 1<<20 {
		t.Errorf("%d bytes more were allocated, want at least a mebibyte", after.allocated-before.allocated)
	}
	runtime.KeepAlive(garbage)
}
