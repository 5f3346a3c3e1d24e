package embedded

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// askingDB requests permission for a merge at the moment when the scheduler asks whether a merge waits.
type askingDB struct {
	scheduler *mergeScheduler
	waiting   bool
	started   chan pebble.CompactionGrantHandle
}

func (*askingDB) GetAllowedWithoutPermission() int { return 1 }

func (d *askingDB) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	if d.waiting {
		return true, pebble.WaitingCompaction{}
	}
	// No merge waits at this moment. Before the scheduler continues, another goroutine requests a merge.
	permitted, _ := d.scheduler.TrySchedule()
	d.waiting = !permitted
	return false, pebble.WaitingCompaction{}
}

func (d *askingDB) Schedule(permission pebble.CompactionGrantHandle) bool {
	d.waiting = false
	d.started <- permission
	return true
}

// TestMergeIsNotForgotten checks that a merge starts later if it was refused while the scheduler found that no
// merge waited.
func TestMergeIsNotForgotten(t *testing.T) {
	m := newMergeScheduler(&Store{opts: Options{ReserveBytes: -1}})
	db := &askingDB{scheduler: m, started: make(chan pebble.CompactionGrantHandle, 1)}
	m.Register(1, db)
	defer m.Unregister()
	m.signal()
	receive(t, "the start of the merge", db.started).Done()
}

// TestWaitingForMergesOverDamage: after a merge has read damaged data, writes do not wait for a merge that has not
// begun, because it may be the one that always fails.
func TestWaitingForMergesOverDamage(t *testing.T) {
	m := newMergeScheduler(&Store{opts: Options{ReserveBytes: -1}})
	db := &askingDB{scheduler: m, started: make(chan pebble.CompactionGrantHandle, 1)}
	m.Register(1, db)
	defer m.Unregister()
	if !m.mayHelp() {
		t.Error("before any damage writes do not wait for merges")
	}
	_, first := m.TrySchedule()
	m.failedByDamage()
	first.Done()
	if m.mayHelp() {
		t.Error("writes wait although the next merge may be one that always fails")
	}
	m.retryNow()
	next := receive(t, "the start of the next merge", db.started)
	if !m.mayHelp() {
		t.Error("writes do not wait for a merge that runs")
	}
	next.Done()
}
