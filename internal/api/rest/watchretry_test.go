package rest

import (
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// TestPlace reads the events of a log again and again from the place of a watch, which gets one event further each time.
// It must pass each event once, also if several have the same revision.
func TestPlace(t *testing.T) {
	log := []int64{5, 7, 7, 7, 8, 11, 11}
	for batch := 1; batch <= len(log); batch++ {
		at := place{revision: 4}
		var passed []int64
		for range log {
			var events []*cache.Event
			for _, revision := range log {
				if revision > at.revision-1 {
					events = append(events, &cache.Event{Revision: revision})
				}
			}
			again := at.events
			for part := range slices.Chunk(events, batch) {
				if part, again = at.skip(part, again); len(part) > 0 {
					passed = append(passed, part[0].Revision)
					at.pass(part[0])
					break // the next one cannot be converted
				}
			}
		}
		if !slices.Equal(passed, log) {
			t.Errorf("in batches of %d: passed %v, want %v", batch, passed, log)
		}
	}
}
