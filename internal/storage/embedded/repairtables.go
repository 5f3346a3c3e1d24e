package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableGap is a gap and the table that has it.
type tableGap struct {
	gap
	table string
}

// pendingName is a file in DamagedName. It has the gaps of replaced tables until the database records what is
// lost. Without this file, a repair that is repeated after an interruption would only find undamaged tables.
const pendingName = "pending.json"

// pendingGap is a gap in the file pendingName.
type pendingGap struct {
	Table         string
	After, Before []byte
}

// readPending returns the gaps of a repair that was interrupted.
func readPending(o *Options) (gaps []tableGap, err error) {
	content, err := readFile(o.FS, o.FS.PathJoin(o.Dir, DamagedName, pendingName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []pendingGap
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	for _, p := range list {
		gaps = append(gaps, tableGap{gap{p.After, p.Before}, p.Table})
	}
	return gaps, err
}

// writePending writes the gaps found so far. It is called before a table is replaced.
func writePending(o *Options, gaps []tableGap) error {
	var list []pendingGap
	for _, g := range gaps {
		list = append(list, pendingGap{g.table, g.after, g.before})
	}
	content, err := json.Marshal(list)
	if err != nil {
		return err
	}
	name := o.FS.PathJoin(o.Dir, DamagedName, pendingName)
	f, err := o.FS.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return errors.Join(o.FS.Rename(name+".new", name), syncFolder(o.FS, o.FS.PathJoin(o.Dir, DamagedName)))
}

// syncFolder makes the names in a folder durable.
func syncFolder(fs vfs.FS, name string) error {
	d, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// replaceTables replaces the damaged tables.
func replaceTables(ctx context.Context, o *Options, lock *pebble.Lock, done *Repaired) (gaps []tableGap, err error) {
	options := o.pebbleOptions(probing{}, nil)
	options.EnsureDefaults()
	sizes, err := wrongSizes(o, lock)
	if err != nil {
		return nil, err
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, err
	}
	for name := range sizes { // the missing tables
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if gaps, err = readPending(o); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !strings.HasSuffix(name, tableSuffix) {
			continue
		}
		found, size, err := examineTable(o, options, name, sizes[name])
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		for _, g := range found.gaps {
			gaps = append(gaps, tableGap{g, name})
		}
		if err := replaceTable(o, found, name, size, gaps); err != nil {
			return nil, fmt.Errorf("cannot repair %s: %w", o.FS.PathJoin(o.Dir, name), err)
		}
		done.Tables = append(done.Tables, name)
	}
	return gaps, syncFolder(o.FS, o.Dir)
}

// examineTable returns the readable parts of a table, or nil if the table is not damaged, and the size that the
// table has according to the database. The parameter size is that size if the file is missing or has another size,
// and otherwise 0.
func examineTable(o *Options, options *pebble.Options, name string, size int64) (*rescue, int64, error) {
	file := o.FS.PathJoin(o.Dir, name)
	content, err := readFile(o.FS, file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, err
	}
	if size == 0 {
		if verifyTable(*o, file, options.MakeReaderOptions()) == nil {
			return nil, 0, nil
		}
		size = int64(len(content))
	}
	found := rescueTable(options, content)
	return &found, size, nil
}

// replaceTable replaces a table with the parts that could be read, and keeps the damaged file. gaps are all gaps
// that were found so far.
func replaceTable(o *Options, found *rescue, name string, size int64, gaps []tableGap) error {
	file, aside := o.FS.PathJoin(o.Dir, name), o.FS.PathJoin(o.Dir, DamagedName)
	const private = 0o700
	if err := o.FS.MkdirAll(aside, private); err != nil {
		return err
	}
	if err := writePending(o, gaps); err != nil {
		return err
	}
	replacement := file + ".repaired"
	if err := found.write(o.FS, replacement, size); err != nil {
		return err
	}
	// A link keeps a file of this name in the store at every moment. An earlier repair may have left a file of the
	// same name in the folder.
	if err := vfs.LinkOrCopy(o.FS, file, freeName(o.FS, o.FS.PathJoin(aside, name))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return o.FS.Rename(replacement, file)
}

// freeName returns name if it is not taken, and otherwise name with the first free number after it.
func freeName(fs vfs.FS, name string) string {
	free := name
	for i := 2; ; i++ {
		if _, err := fs.Stat(free); err != nil {
			return free
		}
		free = name + "." + strconv.Itoa(i)
	}
}

var (
	missingTable = regexp.MustCompile(`file (\d+) \(type sstable\) unknown to the objstorage provider`)
	wrongSize    = regexp.MustCompile(`L\d+: (\d+): object size mismatch \([^)]*\): \d+ \(disk\) != (\d+) \(MANIFEST\)`)
)

// probing is the logger of a database that is opened to see what is wrong with it: its errors are returned, and not logged.
type probing struct{}

func (probing) Infof(string, ...any)  {}
func (probing) Errorf(string, ...any) {}

// Fatalf panics, because the database cannot continue.
func (probing) Fatalf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

// wrongSizes returns the tables that are missing or have a wrong size, each with its size according to the
// database. Pebble has no function that reads the sizes. They are in the errors of opening the database.
// Afterwards a missing table exists as an empty file.
func wrongSizes(o *Options, lock *pebble.Lock) (map[string]int64, error) {
	sizes := map[string]int64{}
	for { // each round finds the sizes of the tables that the one before has found missing
		options := o.pebbleOptions(probing{}, lock)
		options.ReadOnly, options.ErrorIfNotExists = true, true
		options.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
		db, err := guardPanic(func() (*pebble.DB, error) { return pebble.Open(o.Dir, options) })
		if err == nil {
			return sizes, db.Close()
		}
		text, before := err.Error(), len(sizes)
		for _, m := range missingTable.FindAllStringSubmatch(text, -1) {
			f, err := o.FS.Create(o.FS.PathJoin(o.Dir, m[1]+tableSuffix), vfs.WriteCategoryUnspecified)
			if err != nil {
				return nil, err
			}
			sizes[m[1]+tableSuffix] = 0
			if err := f.Close(); err != nil {
				return nil, err
			}
		}
		known := false
		for _, m := range wrongSize.FindAllStringSubmatch(text, -1) {
			known = true
			if sizes[m[1]+tableSuffix], err = strconv.ParseInt(m[2], 10, 64); err != nil {
				return nil, err
			}
		}
		if len(sizes) == before {
			if known {
				return sizes, nil
			}
			return nil, openError(o.Dir, err)
		}
	}
}
