package embedded

import "github.com/cockroachdb/pebble/v2/vfs"

// Pebble allocates a log file in advance, as large as the largest memtable, so that a sync does not have to store
// a new size. It keeps up to five log files for reuse. They take 45 MB, which a small disk may not have: the store
// would refuse writes although it contains very little, and deletions would not help. So while space is scarce,
// log files grow as they are written, and old ones are removed instead of reused.

// logCategory is the category with which Pebble creates files of the log.
const logCategory vfs.DiskWriteCategory = "pebble-wal"

// scarce reports whether less than four times the reserve is free. The alert about disk space has the same
// threshold.
func (m *mergeScheduler) scarce() bool {
	const reserves = 4
	if m.opts.ReserveBytes <= 0 {
		return false
	}
	available, _, err := m.disk.available(m.opts)
	return err == nil && available < reserves*uint64(m.opts.ReserveBytes)
}

// logFile is a file of the log that is not allocated in advance.
type logFile struct{ vfs.File }

// Preallocate implements vfs.File.
func (logFile) Preallocate(int64, int64) error { return nil }

// createLog creates a file of the log.
func (m *mergeScheduler) createLog(name string) (vfs.File, error) {
	f, err := m.FS.Create(name, logCategory)
	if err != nil || !m.scarce() {
		return f, err
	}
	return logFile{f}, nil
}

// ReuseForWrite implements vfs.FS. Its contract allows to create a new file.
func (m *mergeScheduler) ReuseForWrite(before, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category != logCategory || !m.scarce() {
		return m.FS.ReuseForWrite(before, name, category)
	}
	if err := m.FS.Remove(before); err != nil {
		return nil, err
	}
	return m.createLog(name)
}
