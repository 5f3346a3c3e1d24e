package embedded

import (
	"context"
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// Purge removes everything from the files of the store in o.Dir but the newest versions: what was overwritten or deleted, the log of
// changes, and the damaged tables that Repair has kept. No process may use the directory. Reads of the past and watches begin at the
// revision of the purge afterwards. It may be called again if it was interrupted.
//
// Removed history stays in tables until they are merged, and in files of the log until these are removed or written over. So Purge
//
//  1. opens the store without a retention, and compacts all of its history;
//  2. opens the database again, which moves what is in the files of the log to tables and removes the files. The new ones stay empty, because
//     nothing is written any more: a file of the log that is used again may end with records of before;
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
