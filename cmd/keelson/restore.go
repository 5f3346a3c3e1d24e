package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func newRestoreCopy(out, errOut io.Writer) *cobra.Command {
	r := &copyRestore{out: out, errOut: errOut}
	c := &cobra.Command{
		Use: "restore", Short: "Make a data directory from a copy (--backup-to)",
		Long: "Restore makes a data directory, which must be empty or missing, out of the copy\n" +
			"that `keelson serve --backup-to` has kept, as the data was at any moment of the\n" +
			"copy (`keelson backup list`). All objects get new resourceVersions above any\n" +
			"that a client can have seen, so that clients list again. An encrypted copy may\n" +
			"have the server's certificates and keys too (--backup-keys). Of another one put\n" +
			"the old pki directory beside the store before the server starts, or it makes an\n" +
			"authority of its own. A restore needs about three times the space of the data.",
		Example: "  keelson restore --from /mnt/copy --data-dir restored\n" +
			"  keelson restore --from s3://bucket/cluster --at 5m --data-dir restored\n" +
			"  keelson restore --from /mnt/copy --at 2026-05-01T12:00:00Z --data-dir restored",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	r.place.addFlags(c)
	f := c.Flags()
	f.StringVar(&r.at, "at", "", "the moment to restore: a time (2026-05-01T12:00:00Z, or \"2026-05-01 12:00:00\" of this machine), "+
		"how long ago (5m, 2h, 3d), or a revision. The default is the end of the copy")
	f.StringVar(&r.dataDir, "data-dir", "", "directory to make")
	f.StringVar(&r.identity, "identity", "", copyIdentityUsage)
	f.BoolVar(&r.history, "history", false, "restore what the copy has of the past too (--history-retention)")
	f.Int64Var(&r.minRevision, "min-revision", 0, "a revision that all new ones must be above, if clients may have seen one that high")
	return c
}

// copyRestore restores a copy.
type copyRestore struct {
	place                 copyPlace
	at, dataDir, identity string
	history               bool
	minRevision           int64
	out, errOut           io.Writer
	fs                    vfs.FS // the file system; nil: the one of the operating system
}

// parseMoment parses a moment of a copy. now is the time from which it counts back.
func parseMoment(text string, now time.Time) (copies.Target, error) {
	if text == "" {
		return copies.Target{}, nil
	}
	if strings.Trim(text, "0123456789") == "" {
		revision, err := strconv.ParseInt(text, 10, 64)
		if err == nil && revision > 0 {
			return copies.Target{Revision: revision}, nil
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return copies.Target{Time: t}, nil
	}
	if t, err := time.ParseInLocation(time.DateTime, text, time.Local); err == nil {
		return copies.Target{Time: t}, nil
	}
	if ago, err := parseAge(text); err == nil && strings.Trim(text, "0123456789") != "" {
		return copies.Target{Time: now.Add(-ago)}, nil
	}
	return copies.Target{}, fmt.Errorf("%q is not a time such as 2026-05-01T12:00:00Z or \"2026-05-01 12:00:00\", "+
		"a length of time such as 5m, 2h or 3d, or a revision", text)
}

// encryptionFile is the name in a copy of the file of --encryption-provider-config.
const encryptionFile = "encryption-provider-config.yaml"

// restoredCopy is what was restored.
type restoredCopy struct {
	state copies.Restored
	store backup.Restored
}

func (r *copyRestore) run(ctx context.Context) (err error) {
	target, err := parseMoment(r.at, time.Now())
	if err != nil {
		return fmt.Errorf("--at: %w", err)
	}
	identities, err := readIdentities(r.identity)
	if err != nil {
		return err
	}
	b, closeBucket, err := r.place.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBucket()) }()
	if _, _, err := r.plan(ctx, b, target); err != nil {
		return r.place.explain(err)
	}
	var done restoredCopy
	err = restoreInto(r.dataDir, func(o embedded.Options) (err error) {
		o.FS = r.fs
		done, err = r.restore(ctx, b, target, identities, o)
		return r.place.explain(err)
	})
	if err != nil {
		return err
	}
	return r.print(&done)
}

// plan lists the copy and plans the restore.
func (r *copyRestore) plan(ctx context.Context, b bucket.Bucket, target copies.Target) (*copies.Index, *copies.Plan, error) {
	x, err := copies.ReadIndex(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	p, err := x.Plan(target)
	return x, p, err
}

// restore makes the store in o.Dir, and the files beside it. After an error it removes those files.
func (r *copyRestore) restore(
	ctx context.Context, b bucket.Bucket, target copies.Target, identities []age.Identity, o embedded.Options,
) (done restoredCopy, err error) {
	// The store with the revisions of the copy is in a folder of the new store, so that it is removed with that, also after this process
	// was killed.
	work := filepath.Join(o.Dir, "copy")
	x, err := r.restoreState(ctx, b, target, identities, work, &done)
	if err != nil {
		return done, err
	}
	if err := r.restamp(ctx, x, work, o, &done); err != nil {
		return done, err
	}
	if err := os.RemoveAll(work); err != nil {
		return done, err
	}
	if err := r.verify(ctx, o); err != nil {
		return done, err
	}
	record := datadir.CopyRecord(r.dataDir)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.removeFiles(append(slices.Collect(maps.Keys(done.state.Files)), filepath.Base(record))))
		}
	}()
	if err := writeFiles(r.dataDir, done.state.Files); err != nil {
		return done, err
	}
	return done, copies.UpdateRecord(record, r.place.url, func(r *copies.Record) { r.Epoch, r.Restored = x.Newest(), true })
}

// attempts is how often a restore begins again because a server has merged or removed what it was about to read.
const attempts = 5

// restoreState makes a store in work with the revisions that it had.
func (r *copyRestore) restoreState(
	ctx context.Context, b bucket.Bucket, target copies.Target, identities []age.Identity, work string, done *restoredCopy,
) (x *copies.Index, err error) {
	for range attempts {
		if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o700)); err != nil {
			return nil, err
		}
		var plan *copies.Plan
		if x, plan, err = r.plan(ctx, b, target); err != nil {
			continue // a list that was made while a server merged segments may lack some
		}
		total := plan.Image.Size
		for _, s := range plan.Segments {
			total += s.Size
		}
		var read counter
		bar := startProgress(r.errOut, "Reading", megabytes, read.of(total))
		done.state, err = plan.Restore(
			ctx, &countedBucket{b, &read}, embedded.Options{Dir: filepath.Join(work, "store"), FS: r.fs}, work, identities,
		)
		bar.stop()
		if !errors.Is(err, bucket.ErrNotFound) {
			break
		}
	}
	return x, err
}

// restamp makes the store in o.Dir, with new revisions, from the one in work.
func (r *copyRestore) restamp(ctx context.Context, x *copies.Index, work string, o embedded.Options, done *restoredCopy) error {
	from, err := embedded.OpenReader(embedded.Options{Dir: filepath.Join(work, "store"), FS: r.fs})
	if err != nil {
		return err
	}
	bar := startProgress(r.errOut, "Writing", megabytes, func() (int64, int64) { return sizeOf(o.Dir) - sizeOf(work), 0 })
	defer bar.stop()
	moment := copies.Moment{Revision: done.state.Revision, Time: done.state.Time}
	by := registry.Author{Verb: "restore", Reason: "a copy was restored as of " + moment.String()}
	done.store, err = backup.RestoreStore(ctx, from, backup.StoreState{Time: done.state.Time, Seen: x.Highest(), Past: r.history}, o,
		backup.RestoreOptions{MinRevision: r.minRevision, Now: time.Now(), By: by.Encode(nil)})
	if err != nil {
		return err // RestoreStore says why from is not closed
	}
	return from.Close()
}

// verify reads the whole new store. What is wrong with it is an error. Values that cannot be decoded are printed only, because the server
// had them too.
func (r *copyRestore) verify(ctx context.Context, o embedded.Options) error {
	s, err := embedded.OpenReader(o)
	if err != nil {
		return err
	}
	values, problems := valueCheck{layout: newLayout()}, 0
	bar := startProgress(r.errOut, "Checking", keys, values.checked.of(0))
	_, err = s.Verify(ctx, embedded.Checks{Value: func(record embedded.Record) []string {
		for _, text := range values.check(record) {
			fmt.Fprintf(r.out, "key %s: %s; it is restored as it was\n", record.Key, text)
		}
		return nil
	}}, func(p embedded.Problem) {
		problems++
		fmt.Fprintln(r.out, p)
	})
	bar.stop()
	if err = errors.Join(err, s.Close()); err == nil && problems > 0 {
		err = fmt.Errorf("%d things are wrong with the new store, so it was removed", problems)
	}
	return err
}

// removeFiles removes files from the data directory, and the folders that are empty then.
func (r *copyRestore) removeFiles(names []string) (err error) {
	for _, name := range names {
		if !filepath.IsLocal(name) {
			continue // it was not written
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(r.dataDir, name)))
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			_ = os.Remove(filepath.Join(r.dataDir, dir)) // it fails if there is anything in it
		}
	}
	return err
}

// print says what was restored, and what to do next.
func (r *copyRestore) print(done *restoredCopy) error {
	names := slices.Sorted(maps.Keys(done.state.Files))
	if len(names) > 0 {
		fmt.Fprintf(r.out, "Restored %s\n", strings.Join(names, ", "))
	}
	if lacks := missingKeys(names); lacks != "" {
		fmt.Fprintf(r.out, "The copy does not have %s\n", lacks)
	}
	fmt.Fprintf(r.out, "Restored %d entries%s to %s\n", done.store.Entries, andHistory(done.store.Past), r.dataDir)
	fmt.Fprintf(r.out, "The last change was made at %s; the new store is at revision %d and has %s\n",
		copies.Moment{Revision: done.state.Revision, Time: done.state.Time}, done.store.Revision, megabytes(sizeOf(datadir.StoreDir(r.dataDir))))
	start := "keelson serve --data-dir " + r.dataDir
	if slices.Contains(names, encryptionFile) {
		start += " --encryption-provider-config " + filepath.Join(r.dataDir, encryptionFile)
	}
	_, err := fmt.Fprintf(r.out, "Start the server: %s\nWith --backup-to %s it goes on writing to this copy\n", start, r.place.url)
	return err
}
