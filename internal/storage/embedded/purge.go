package embedded

import (
	"context"
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// Purge keeps only the newest versions in the files of the store in o.Dir. It removes overwritten and deleted
// versions, the log of changes, and the damaged tables that Repair has kept. No process may use the directory.
// Afterwards reads of the past and watches begin at the revision of the purge. If Purge was interrupted, it may be
// called again.
//
// Removed history stays in tables until they are merged, and in log files until they are removed or overwritten.
// So Purge
//
//  1. opens the store without a retention, and compacts all of its history;
//  2. opens the database again, which moves the contents of log files to tables and removes the files. New log
//     files stay empty, because nothing is written any more (a log file that is reused could end with old
//     records);
//  3. merges all tables.
func Purge(ctx context.Context, o Options) (revision int64, err error) {
	o.HistoryWindow, o.Retention.Rules = -1, nil
	s, err := Open(o)
	if err != nil {
		return 0, err
	}
	if revision, err = s.Revision(ctx); err == nil {
		err = s.Compact(ctx, revision)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return 0, err
	}
	if err := purgeFiles(ctx, o.withDefaults()); err != nil {
		return 0, err
	}
	return revision, nil
}

// purgeFiles does the steps 2 and 3 of Purge.
func purgeFiles(ctx context.Context, o Options) error {
	s := &Store{opts: o, lifetime: newLifetime()}
	defer s.lifetime.stop()
	h := &corruptionHandler{store: s, logged: map[string]bool{}}
	if err := s.openDB(func(p *pebble.Options) { h.logger, p.EventListener = p.Logger, h.listener() }); err != nil {
		return err
	}
	err := s.db.flushMemTables(ctx)
	if err == nil {
		_, err = guardPanic(func() (struct{}, error) { return struct{}{}, s.db.Compact(ctx, []byte{0}, []byte{0xff}, false) })
	}
	if err = errors.Join(err, s.closeDB()); err != nil {
		return err
	}
	if err := o.FS.RemoveAll(o.FS.PathJoin(o.Dir, DamagedName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
