//go:build !linux

package hostile

import (
	"errors"
	"time"
)

// measuring says that usageOf works here.
const measuring = false

// usage is what a process uses, as the kernel counts it.
type usage struct {
	cpu                       time.Duration
	anonymous, resident, peak int64
}

func usageOf(int) (usage, error) { return usage{}, errors.ErrUnsupported }

func resetPeak(int) error { return errors.ErrUnsupported }
