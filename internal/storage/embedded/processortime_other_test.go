//go:build !unix

package embedded

import (
	"testing"
	"time"
)

// processorTime skips the benchmark, because the processor time cannot be read on this system.
func processorTime(b *testing.B) time.Duration {
	b.Skip("the processor time of this process is only known on Unix")
	return 0
}
