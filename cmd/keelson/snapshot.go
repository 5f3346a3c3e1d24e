package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/snapshots"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

func newSnapshot(out, errOut io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "snapshot", Short: "Save and restore the data, also from and to etcd",
		Example:      "  keelson snapshot save backup.snapshot\n  keelson snapshot restore --data-dir restored backup.snapshot",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSave(out, errOut), newStatus(out), newRestore(out, errOut), newImportEtcd(out, errOut), newExportEtcd(out, errOut))
	return c
}

// fileCommand returns a command whose argument is a file.
func fileCommand(use, short, long string, run func(ctx context.Context, file string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " FILE", Short: short, Long: long, SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("keelson snapshot %s takes one argument, the file", use)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return run(c.Context(), args[0]) },
	}
}

const (
	dataDirUsage = "directory of the data"
	forceUsage   = "replace the file if it exists"
)

func newSave(out, errOut io.Writer) *cobra.Command {
	from, force := saveFrom{dataDir: config.Default().Storage.DataDir, out: out}, false
	c := fileCommand("save", "Save the data to a file",
		"Save writes the state of the store at one revision to a file. A running server\n"+
			"is asked for it, over its API as an administrator, and goes on serving\n"+
			"meanwhile; of a stopped one the data directory is read.",
		func(ctx context.Context, file string) error {
			if err := checkAbsent(file, force); err != nil {
				return err
			}
			var summary backup.Summary
			err := replaceFile(file, func(temporary string) (err error) {
				bar := startProgress(errOut, "Saving", megabytes, func() (int64, int64) { return sizeOf(temporary), 0 })
				defer bar.stop()
				summary, err = from.save(ctx, temporary)
				return err
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "Saved %d entries%s at revision %d to %s\n",
				summary.Entries, andHistory(summary.Past), summary.Revision, file)
			return err
		})
	c.Example = "  keelson snapshot save --data-dir /var/lib/keelson backup.snapshot\n" +
		"  keelson snapshot save --data-dir damaged --skip-damaged rescued.snapshot\n" +
		"  keelson snapshot save --kubeconfig admin.kubeconfig backup.snapshot"
	c.Flags().StringVar(&from.dataDir, "data-dir", from.dataDir, dataDirUsage)
	c.Flags().BoolVar(&from.history, "history", false, "save what can still be read of the past too (--history-retention)")
	c.Flags().BoolVar(&force, "force", false, forceUsage)
	c.Flags().BoolVar(&from.skipDamaged, "skip-damaged", false,
		"save what can be read of a damaged data directory, and print what cannot; the server must be stopped")
	c.Flags().StringVar(
		&from.kubeconfig, "kubeconfig", "",
		"kubeconfig of a user who may post to /keelson/snapshot, to save from a running server anywhere (without exec plug-ins)",
	)
	c.MarkFlagsMutuallyExclusive("skip-damaged", "kubeconfig")
	c.MarkFlagsMutuallyExclusive("skip-damaged", "history") // restore could not trust a history with gaps
	return c
}

// andHistory returns the words about records of history in the message about a snapshot, "" if there are none.
func andHistory(records int64) string {
	if records == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d records of their history", records)
}

// saveFrom is the source of a snapshot: a data directory, or the server of a kubeconfig.
type saveFrom struct {
	dataDir, kubeconfig  string
	history, skipDamaged bool
	out                  io.Writer // receives the list of data that --skip-damaged cannot save
}

// save writes a snapshot to an existing file and verifies the file.
func (s *saveFrom) save(ctx context.Context, path string) (summary backup.Summary, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return summary, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := s.saveTo(ctx, f); err != nil {
		return summary, err
	}
	if err := f.Sync(); err != nil {
		return summary, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return summary, err
	}
	return backup.Verify(bufio.NewReaderSize(f, readBuffer), nil)
}

const readBuffer = 1 << 20

func (s *saveFrom) saveTo(ctx context.Context, w io.Writer) error {
	if s.skipDamaged {
		return s.salvage(ctx, w)
	}
	kubeconfig := s.kubeconfig
	if kubeconfig == "" {
		stopped, err := openStopped(s.dataDir)
		switch {
		case err == nil:
			return errors.Join(s.saveStopped(ctx, w, stopped), stopped.Close())
		case !errors.Is(err, datadir.ErrUsed):
			return err
		}
		kubeconfig = datadir.Kubeconfig(s.dataDir)
	}
	r, err := newRemote(kubeconfig)
	if err != nil {
		return err
	}
	path := snapshots.Path
	if s.history {
		path += "?history=true"
	}
	body, err := r.post(ctx, path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, body)
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("the server at %s did not send the snapshot to its end (%w); its log says why. "+
			"If data on its disk is damaged, stop it and use --skip-damaged", r.server, oneLine(err))
	}
	return nil
}

// salvage saves the readable data of a stopped store, and prints which data is lost.
func (s *saveFrom) salvage(ctx context.Context, w io.Writer) (err error) {
	lock, err := datadir.LockDataDir(s.dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	created := time.Now()
	return repairedCopy(ctx, s.dataDir, embedded.RepairOptions{UseOlder: true}, func(r *embedded.Reader, done *embedded.Repaired) error {
		for _, l := range done.Lost {
			fmt.Fprintln(s.out, l)
		}
		e, err := r.Export()
		if err != nil {
			return oneLine(err)
		}
		o := backup.SaveOptions{Created: created, Program: version.Program(), Past: s.history, SkipLost: true}
		_, err = backup.Save(ctx, w, e, o)
		return errors.Join(err, e.Close())
	})
}

func (s *saveFrom) saveStopped(ctx context.Context, w io.Writer, stopped *stoppedStore) error {
	created := time.Now()
	e, err := stopped.Export()
	if err != nil {
		return err
	}
	_, err = backup.Save(ctx, w, e, backup.SaveOptions{Created: created, Program: version.Program(), Past: s.history})
	return errors.Join(err, e.Close())
}

// snapshotStatus is the output of `keelson snapshot status -o json`.
type snapshotStatus struct {
	File      string           `json:"file"`
	Format    int              `json:"format"`
	Program   string           `json:"program"`
	Created   time.Time        `json:"created"`
	Revision  int64            `json:"revision"`
	Entries   int64            `json:"entries"`
	Bytes     int64            `json:"bytes"`    // size of keys and values
	FileSize  int64            `json:"fileSize"` // in bytes
	SHA256    string           `json:"sha256"`
	Expiring  int64            `json:"expiring"`
	Past      int64            `json:"past,omitempty"`      // records of the history
	PastBytes int64            `json:"pastBytes,omitempty"` // their size
	Files     []string         `json:"files,omitempty"`
	Resources map[string]int64 `json:"resources"` // entries of each resource
}

func newStatus(out io.Writer) *cobra.Command {
	format, identity := "", ""
	c := fileCommand("status", "Verify a snapshot and say what is in it",
		"Status reads a snapshot to its end, verifies its checksum, and prints how many\nobjects of each resource are in it.", func(_ context.Context, file string) error {
			if format != "" && format != "json" {
				return fmt.Errorf("--output must be json, not %q", format)
			}
			s, err := readStatus(file, identity)
			if err != nil {
				return err
			}
			if format == "json" {
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				return e.Encode(s)
			}
			return s.print(out)
		})
	c.Example = "  keelson snapshot status backup.snapshot"
	c.Flags().StringVarP(&format, "output", "o", "", "json, or nothing for a table")
	c.Flags().StringVar(&identity, "identity", "", identityUsage)
	return c
}

func readStatus(file, identity string) (*snapshotStatus, error) {
	f, err := openSnapshot(file, identity)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &snapshotStatus{File: file, FileSize: sizeOf(file), Resources: map[string]int64{}}
	names := newLayout()
	summary, err := backup.Verify(bufio.NewReaderSize(f, readBuffer), func(e snapshot.Entry) {
		s.Resources[names.resource(e.Key)]++
		if e.Deadline != 0 {
			s.Expiring++
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s.Files = slices.Sorted(maps.Keys(summary.Files))
	s.Format, s.Past, s.PastBytes = summary.Version(), summary.Past, summary.PastBytes
	s.Program, s.Created, s.Revision = summary.Program, summary.Created, summary.Revision
	s.Entries, s.Bytes, s.SHA256 = summary.Entries, summary.Bytes, hex.EncodeToString(summary.SHA256)
	return s, nil
}

func (s *snapshotStatus) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "file\t%s (%d bytes, format %d, %s)\n", s.File, s.FileSize, s.Format, s.Program)
	fmt.Fprintf(w, "created\t%s\n", s.Created.Format(time.RFC3339))
	fmt.Fprintf(w, "revision\t%d\n", s.Revision)
	fmt.Fprintf(w, "entries\t%d (%d with a time to live)\n", s.Entries, s.Expiring)
	fmt.Fprintf(w, "bytes\t%d\n", s.Bytes)
	if s.Past > 0 {
		fmt.Fprintf(w, "history\t%d records of %d bytes\n", s.Past, s.PastBytes)
	}
	fmt.Fprintf(w, "sha256\t%s\n", s.SHA256)
	if len(s.Files) > 0 {
		fmt.Fprintf(w, "files\t%s\n", strings.Join(s.Files, " "))
	}
	if lacks := missingKeys(s.Files); lacks != "" {
		fmt.Fprintf(w, "missing\t%s\n", lacks)
	}
	names := make([]string, 0, len(s.Resources))
	for name := range s.Resources {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(w, "  %s\t%d\n", name, s.Resources[name])
	}
	return w.Flush()
}

func newRestore(out, errOut io.Writer) *cobra.Command {
	dataDir, identity, minRevision := "", "", int64(0)
	c := fileCommand("restore", "Make a data directory from a snapshot",
		"Restore makes a data directory, which must be empty or missing. All objects get\n"+
			"new resourceVersions above any that a client can have seen, so that clients list\n"+
			"again. An encrypted snapshot has the server's certificates and keys too. Of\n"+
			"another one put the old pki directory beside the store before the server\n"+
			"starts, or it makes an authority of its own.",
		func(ctx context.Context, file string) error {
			f, err := openSnapshot(file, identity)
			if err != nil {
				return err
			}
			defer f.Close()
			var restored backup.Restored
			err = restoreInto(dataDir, func(o embedded.Options) (err error) {
				if restored, err = restoreFrom(ctx, errOut, f, o, minRevision); err != nil {
					return err
				}
				return writeFiles(dataDir, restored.Files)
			})
			if err != nil {
				return err
			}
			names := slices.Sorted(maps.Keys(restored.Files))
			if len(names) > 0 {
				fmt.Fprintf(out, "Restored %s\n", strings.Join(names, ", "))
			}
			if lacks := missingKeys(names); lacks != "" {
				fmt.Fprintf(out, "The snapshot does not have %s\n", lacks)
			}
			return printRestored(out, restored, dataDir)
		})
	c.Flags().StringVar(&identity, "identity", "", identityUsage)
	c.Example = "  keelson snapshot restore --data-dir restored backup.snapshot"
	c.Flags().StringVar(&dataDir, "data-dir", "", "directory to make")
	c.Flags().Int64Var(
		&minRevision, "min-revision", 0, "a revision that all new ones must be above, if clients may have seen one that high",
	)
	return c
}

// missingKeys lists the keys of the server that are not in a snapshot with these files, and the effect on a server
// that is restored from it. The result is "" if no key is missing.
func missingKeys(files []string) string {
	var lacks []string
	for _, k := range []struct{ file, effect string }{
		{"pki/ca.key", "kubeconfigs and client certificates are not accepted"},
		{"pki/sa.key", "tokens of service accounts are not accepted"},
	} {
		if !slices.Contains(files, k.file) {
			lacks = append(lacks, k.file+" (without it, "+k.effect+")")
		}
	}
	return strings.Join(lacks, ", ")
}

const identityUsage = "file with the private key of age that decrypts an encrypted snapshot"

// openSnapshot opens a snapshot file. identity is "" or the path of a file with the key of an encrypted snapshot.
func openSnapshot(file, identity string) (*backup.File, error) {
	identities, err := readIdentities(identity)
	if err != nil {
		return nil, err
	}
	f, err := backup.OpenFile(file, identities)
	switch {
	case errors.Is(err, backup.ErrEncrypted):
		return nil, fmt.Errorf("%s: %w; --identity names the file with its key", file, err)
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", file, oneLine(withoutPath(err)))
	}
	return f, nil
}

// restoreFrom creates a store from a snapshot file.
func restoreFrom(
	ctx context.Context, errOut io.Writer, f *backup.File, o embedded.Options, minRevision int64,
) (backup.Restored, error) {
	var read counter
	bar := startProgress(errOut, "Restoring", megabytes, read.of(f.Size()))
	defer bar.stop()
	by := registry.Author{Verb: "restore", Reason: "the snapshot " + filepath.Base(f.Name()) + " was restored"}
	restored, err := backup.Restore(
		ctx, &bufferedFile{ReadSeeker: f, read: &read}, o,
		backup.RestoreOptions{MinRevision: minRevision, Now: time.Now(), By: by.Encode(nil)},
	)
	if err != nil {
		return restored, fmt.Errorf("%s: %w", f.Name(), oneLine(err))
	}
	return restored, nil
}

// writeFiles writes the files of a snapshot to a data directory.
func writeFiles(dataDir string, files map[string][]byte) error {
	const (
		privateFile = 0o600
		privateDir  = 0o700
	)
	for name, content := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the snapshot has a file that is not for the data directory: %q", name)
		}
		path := filepath.Join(dataDir, name)
		if err := os.MkdirAll(filepath.Dir(path), privateDir); err != nil {
			return err
		}
		err := replaceFile(path, func(temporary string) error {
			f, err := os.OpenFile(temporary, os.O_WRONLY, privateFile)
			if err != nil {
				return err
			}
			_, err = f.Write(content)
			return errors.Join(err, f.Sync(), f.Close())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// restoreInto creates a data directory and its store, whose content fill writes.
func restoreInto(dataDir string, fill func(embedded.Options) error) error {
	if dataDir == "" {
		return errors.New("--data-dir must name the directory to make")
	}
	return createStore(dataDir, fill)
}

func printRestored(out io.Writer, r backup.Restored, dataDir string) error {
	_, err := fmt.Fprintf(
		out, "Restored %d entries%s of revision %d to %s, at revision %d\n", r.Entries, andHistory(r.Past), r.From, dataDir, r.Revision,
	)
	return err
}

// bufferedFile reads a file in large pieces.
type bufferedFile struct {
	io.ReadSeeker
	buffer *bufio.Reader
	read   *counter // bytes that were read since the last Seek; the file may be read twice
}

func (f *bufferedFile) Read(b []byte) (int, error) {
	if f.buffer == nil {
		f.buffer = bufio.NewReaderSize(f.ReadSeeker, readBuffer)
	}
	n, err := f.buffer.Read(b)
	f.read.Add(int64(n))
	return n, err
}

// Seek may only be called with positions that earlier calls returned, and before anything was read from there.
func (f *bufferedFile) Seek(offset int64, whence int) (int64, error) {
	f.buffer = nil
	f.read.Store(0)
	return f.ReadSeeker.Seek(offset, whence)
}

const prefixUsage = "what the keys begin with in etcd (--etcd-prefix of the API server)"

func newImportEtcd(out, errOut io.Writer) *cobra.Command {
	dataDir, minRevision := "", int64(0)
	var options backup.EtcdOptions
	c := fileCommand("import-etcd", "Make a data directory from an etcd snapshot",
		"Import-etcd makes a data directory, which must be empty or missing, from a file\n"+
			"that `etcdctl snapshot save` wrote. As with restore, all objects get new\n"+
			"resourceVersions.",
		func(ctx context.Context, file string) error {
			options.Restore.MinRevision, options.Restore.Now = minRevision, time.Now()
			if _, err := os.Stat(file); err != nil {
				return fmt.Errorf("cannot read %s: %w", file, withoutPath(err))
			}
			var restored backup.Restored
			var others int64
			bar := startProgress(errOut, "Importing: written", megabytes, func() (int64, int64) {
				return sizeOf(filepath.Join(dataDir, restoringName)), 0
			})
			defer bar.stop()
			err := restoreInto(dataDir, func(o embedded.Options) (err error) {
				if restored, others, err = backup.ImportEtcd(ctx, file, o, options); err != nil {
					return fmt.Errorf("%s: %w", file, oneLine(err))
				}
				return nil
			})
			if err != nil {
				return err
			}
			if others > 0 {
				fmt.Fprintf(out, "Keys left out because they are not below %s: %d\n", options.Prefix, others)
			}
			return printRestored(out, restored, dataDir)
		})
	c.Example = "  keelson snapshot import-etcd --data-dir imported etcd.db"
	f := c.Flags()
	f.StringVar(&dataDir, "data-dir", "", "directory to make")
	f.StringVar(&options.Prefix, "prefix", "/registry", prefixUsage)
	f.Int64Var(
		&minRevision, "min-revision", 0, "a revision that all new ones must be above, if clients may have seen one that high",
	)
	f.BoolVar(
		&options.Restore.KeepRevisions, "keep-revisions", false,
		"keep etcd's revisions as resourceVersions; only if nothing was written to etcd since the file was",
	)
	f.BoolVar(
		&options.SkipHash, "skip-hash-check", false,
		"take a file without a SHA-256 at its end: a copy of a member's database",
	)
	return c
}

func newExportEtcd(out, errOut io.Writer) *cobra.Command {
	dataDir, prefix, force := config.Default().Storage.DataDir, "/registry", false
	c := fileCommand("export-etcd", "Write the data of a stopped server as an etcd snapshot",
		"Export-etcd writes a file for `etcdutl snapshot restore`. Revisions stay as they\nare.",
		func(ctx context.Context, file string) error {
			if err := checkAbsent(file, force); err != nil {
				return err
			}
			s, err := openStopped(dataDir)
			if err != nil {
				return err
			}
			n, err := exportEtcd(ctx, errOut, file, prefix, s)
			if err = errors.Join(err, s.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "Exported %d entries at revision %d to %s\n", n, s.Revision(), file)
			return err
		})
	c.Flags().StringVar(&dataDir, "data-dir", dataDir, dataDirUsage)
	c.Example = "  keelson snapshot export-etcd --data-dir /var/lib/keelson etcd.db"
	c.Flags().StringVar(&prefix, "prefix", prefix, prefixUsage)
	c.Flags().BoolVar(&force, "force", false, forceUsage)
	return c
}

func exportEtcd(ctx context.Context, errOut io.Writer, file, prefix string, s *stoppedStore) (n int64, err error) {
	e, err := s.Export()
	if err != nil {
		return 0, err
	}
	err = replaceFile(file, func(temporary string) (err error) {
		bar := startProgress(errOut, "Exporting", megabytes, func() (int64, int64) { return sizeOf(temporary), 0 })
		defer bar.stop()
		n, err = backup.ExportEtcd(ctx, temporary, prefix, e, time.Now())
		return err
	})
	return n, errors.Join(err, e.Close())
}
