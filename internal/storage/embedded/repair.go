package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// Repair makes a store with damaged tables usable again. Afterwards no lost data is missing silently: reads of it
// fail. The steps are:
//
//  1. Each damaged table is replaced by a table with the records that can be read (tablerescue.go). It has the
//     same size and sequence numbers, so that the database accepts it. The damaged file is kept in the folder
//     DamagedName.
//  2. The store is opened. The log names every version of the time that it covers. If the log names a version that
//     does not exist, the version is lost. Repair writes a value in its place that no codec can read. So the
//     object exists, cannot be read, and can be deleted like any object that cannot be read (KEP-3926).
//  3. The log does not name objects that have not changed since it begins. Where such objects may be lost, an
//     entry with a name of its own stands for them. Lists of the resource fail until this entry is deleted.
//  4. If log records are lost, the compaction revision rises above them, and watches and reads of the past begin
//     there.
//  5. Versions that were removed from the history before the damage can reappear, because their deletion was lost.
//     They are removed again (mendpast.go). If such a version is all that may be left of an object, the object is
//     lost, because nothing says whether it was changed or deleted afterwards.
//  6. The expiry index is made again from the deadlines.
//
// Example: a block of a table is damaged, with revisions 5 and 9 of /a and revision 7 of /b. The log says that
// revision 9 put /a after revision 5, and revision 7 put /b, which did not exist before. After a repair, /a at 9,
// /a at 5 and /b at 7 cannot be read.

// DamagedName is the folder in the directory of a store in which Repair keeps damaged tables.
const DamagedName = "damaged"

// lostPrefix is the beginning of a value that Repair writes in place of one that is lost. No encoding of an object begins so.
const lostPrefix = "keelson:lost:"

// IsLost reports whether Repair has written a value in place of a lost one.
func IsLost(value []byte) bool { return bytes.HasPrefix(value, []byte(lostPrefix)) }

// Lost describes an object, or several unknown objects, that Repair could not save.
type Lost struct {
	// Key is the key whose newest version is lost. For objects of unknown names it is the key of the entry that takes their
	// place.
	Key string
	// Revision is the revision of the lost version. If it is only possible that a version newer than Older is
	// lost, it is the revision of the entry that says so. It is 0 for objects of unknown names.
	Revision int64
	// Older is the newest version of the key that can still be read, 0 if there is none.
	Older int64
	// After and Before are the keys between which objects of unknown names were; both are "" for an object with a name.
	After, Before string
}

func (l Lost) String() string {
	switch {
	case l.Revision == 0:
		return fmt.Sprintf("lost, if there were any: objects after %q and before %q that had not changed for longer than the history is "+
			"kept; %s stands for them", l.After, l.Before, l.Key)
	case l.Older != 0:
		return fmt.Sprintf("lost: %s at revision %d; its revision %d can be read", l.Key, l.Revision, l.Older)
	}
	return fmt.Sprintf("lost: %s at revision %d", l.Key, l.Revision)
}

// Repaired describes the result of Repair.
type Repaired struct {
	Tables []string // names of the damaged tables
	Lost   []Lost   // objects whose newest version is lost
	Past   int      // number of lost older versions that reads of the past would find
	// LogLost is the highest revision whose log record is lost, 0 if none is. Watches and reads of the past begin above it.
	LogLost int64
}

// RepairOptions are the options of Repair.
type RepairOptions struct {
	// UseOlder replaces a lost version with the newest older version that can be read. Clients would see an older
	// state, so it is only for a copy that gets other revisions.
	UseOlder bool
}

// Repair repairs the store in o.Dir, which no process may use. If it was interrupted, it may be called again. It
// fails if the list of tables of the database (MANIFEST) or its log of writes is damaged.
func Repair(ctx context.Context, o Options, ro RepairOptions) (done Repaired, err error) {
	o = o.withDefaults()
	lock, err := lockDir(&o)
	if err != nil {
		return done, err
	}
	gaps, err := replaceTables(ctx, &o, lock, &done)
	if err = errors.Join(err, lock.Close()); err != nil {
		return done, err
	}
	s := &Store{opts: o, lifetime: newLifetime()}
	defer s.lifetime.stop()
	h := &corruptionHandler{store: s, logged: map[string]bool{}}
	if err := s.openDB(func(p *pebble.Options) {
		h.logger, p.EventListener = p.Logger, h.listener()
		p.DisableAutomaticCompactions = true // the gaps refer to these tables
	}); err != nil {
		return done, err
	}
	m := &mender{store: s, options: ro, gaps: gaps, done: &done}
	_, err = guardPanic(func() (struct{}, error) { return struct{}{}, m.run(ctx) })
	if err == nil {
		err = s.db.Flush()
	}
	if err = errors.Join(err, s.closeDB()); err != nil {
		return done, err
	}
	if err := o.FS.Remove(o.FS.PathJoin(o.Dir, DamagedName, pendingName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return done, err
	}
	return done, nil
}
