package copies

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns the time since the machine was started. It does not change when the clock is set, and runs while the machine sleeps.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(started)
	}
	return time.Duration(t.Nano())
}

var started = time.Now()
