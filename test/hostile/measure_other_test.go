//go:build !linux

package hostile

import (
	"errors"
	"time"
)

// measuring is true if usageOf works on this system.
const measuring = false

// usage is the resource usage of a process as counted by the kernel.
type usage struct {
	cpu                       time.Duration
	anonymous, resident, peak int64
}

func usageOf(int) (usage, error) { return usage{}, errors.ErrUnsupported }

func resetPeak(int) error { return errors.ErrUnsupported }
