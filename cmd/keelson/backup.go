package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
)

func newBackup(out, errOut io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "backup", Short: "List, verify and prune the copy that a server keeps elsewhere",
		Long: "Backup works on the copy that `keelson serve --backup-to` keeps in a directory\n" +
			"or in a bucket of S3. `keelson restore` makes a data directory out of it.",
		Example: "  keelson backup list --from /mnt/copy\n" +
			"  keelson backup verify --from s3://bucket/cluster --identity key.txt",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newBackupList(out), newBackupVerify(out, errOut), newBackupPrune(out))
	return c
}

// copyPlace is where a copy is.
type copyPlace struct {
	url     string
	options bucket.Options
}

func (p *copyPlace) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.url, "from", "", "where the copy is: a directory, or s3://BUCKET/PREFIX (--backup-to of the server)")
	f.StringVar(&p.options.Endpoint, "s3-endpoint", "", "URL of the S3 service; the default is that of AWS. Credentials are read from "+
		"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the shared file of AWS, or the machine")
	f.StringVar(&p.options.Region, "s3-region", "", "region of the bucket")
	f.BoolVar(&p.options.VirtualHost, "s3-virtual-host", false,
		"put the name of the bucket into the host name of requests to --s3-endpoint, not into the path")
	f.StringVar(&p.options.CAFile, "s3-cafile", "",
		"file with the authorities that may have signed the certificate of the service of --s3-endpoint")
}

var errNoPlace = errors.New("--from must name the copy: a directory, or s3://BUCKET/PREFIX")

// open opens the place of the copy, which must exist. The caller closes it.
func (p *copyPlace) open(ctx context.Context) (b bucket.Bucket, closeBucket func() error, err error) {
	if p.url == "" {
		return nil, nil, errNoPlace
	}
	if !strings.Contains(p.url, "://") { // bucket.Open would make the directory
		info, err := os.Stat(p.url)
		if err == nil && !info.IsDir() {
			err = errors.New("it is not a directory")
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the copy in %s (--from): %w", p.url, withoutPath(err))
		}
	}
	b, closeBucket, err = bucket.Open(ctx, p.url, p.options)
	if err != nil {
		return nil, nil, fmt.Errorf("--from: %w", oneLine(err))
	}
	return b, closeBucket, nil
}

// index lists the copy. It fails if there is none.
func (p *copyPlace) index(ctx context.Context, b bucket.Bucket) (*copies.Index, error) {
	x, err := copies.ReadIndex(ctx, b)
	if err != nil {
		return nil, oneLine(err)
	}
	if len(x.Epochs) == 0 {
		return nil, p.explain(copies.ErrEmpty)
	}
	return x, nil
}

// explain returns an error of a copy as one line that says what to do.
func (p *copyPlace) explain(err error) error {
	var other *age.NoIdentityMatchError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, copies.ErrEmpty):
		return fmt.Errorf("%w in %s", copies.ErrEmpty, p.url)
	case errors.Is(err, backup.ErrEncrypted):
		return fmt.Errorf("the copy in %s is encrypted; --identity names the file with its key", p.url)
	case errors.As(err, &other):
		return fmt.Errorf("the copy in %s is not encrypted for the key of --identity", p.url)
	}
	return oneLine(err)
}

const copyIdentityUsage = "file with the private key of age that decrypts an encrypted copy"

// readIdentities reads a file with private keys of age. "" is no file.
func readIdentities(path string) ([]age.Identity, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s (--identity): %w", path, withoutPath(err))
	}
	identities, err := age.ParseIdentities(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s (--identity): %w", path, oneLine(err))
	}
	return identities, nil
}

// parseAge parses a length of time: that of Go (90m, 1h30m), or with days before it (7d, 1d12h).
func parseAge(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	const most = 100 * 365 // days; it is far from the longest Duration
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || n > most {
		return 0, fmt.Errorf("%q is not a length of time such as 30s, 5m, 2h or 7d", text)
	}
	d := time.Duration(0)
	if rest != "" || !found {
		if d, err = time.ParseDuration(rest); err != nil || d < 0 || d > most*24*time.Hour {
			return 0, fmt.Errorf("%q is not a length of time such as 30s, 5m, 2h or 7d", text)
		}
	}
	return time.Duration(n)*24*time.Hour + d, nil
}

// outputFormat is the flag --output.
type outputFormat struct{ name string }

func (f *outputFormat) addFlag(c *cobra.Command, otherwise string) {
	c.Flags().StringVarP(&f.name, "output", "o", "", "json, or nothing for "+otherwise)
}

func (f *outputFormat) validate() error {
	if f.name != "" && f.name != "json" {
		return fmt.Errorf("--output must be json, not %q", f.name)
	}
	return nil
}

// print writes a value as JSON, or calls text.
func (f *outputFormat) print(out io.Writer, value any, text func(io.Writer) error) error {
	if f.name == "" {
		return text(out)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// copyCommand returns a subcommand of backup that reads a copy.
func copyCommand(
	c *cobra.Command, p *copyPlace, f *outputFormat, run func(context.Context, bucket.Bucket) error,
) *cobra.Command {
	c.SilenceUsage, c.SilenceErrors, c.Args = true, true, noArguments
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if err := f.validate(); err != nil {
			return err
		}
		b, closeBucket, err := p.open(c.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeBucket()) }()
		return run(c.Context(), b)
	}
	p.addFlags(c)
	return c
}

// copyList is the output of `keelson backup list -o json`.
type copyList struct {
	Lines []copyLine `json:"lines"` // the newest first
	// Others are objects that are no part of a copy.
	Others []string `json:"others,omitempty"`
}

type copyLine struct {
	Epochs []int64 `json:"epochs"` // the newest first
	// Spans are the moments that can be restored. If there are several, changes are missing in between.
	Spans     []copySpan `json:"spans"`
	Images    int        `json:"images"`
	Segments  int        `json:"segments"`
	Bytes     int64      `json:"bytes"`
	Encrypted bool       `json:"encrypted"`
}

type copySpan struct {
	FirstTime     time.Time `json:"firstTime"`
	FirstRevision int64     `json:"firstRevision"`
	LastTime      time.Time `json:"lastTime"`
	LastRevision  int64     `json:"lastRevision"`
}

func newBackupList(out io.Writer) *cobra.Command {
	p, f := &copyPlace{}, &outputFormat{}
	c := copyCommand(&cobra.Command{
		Use: "list", Short: "List the moments that can be restored",
		Long: "List prints the lines of history in a copy, the newest first, and of each the\n" +
			"first and the last moment that can be restored. A line ends where the data of\n" +
			"another directory, or of a restore, was copied to the same place. If changes in\n" +
			"the middle of a line are missing, it has a row for each part. List reads only\n" +
			"names; `keelson backup verify` reads everything.",
		Example: "  keelson backup list --from /mnt/copy",
	}, p, f, func(ctx context.Context, b bucket.Bucket) error {
		x, err := p.index(ctx, b)
		if err != nil {
			return err
		}
		l := listOf(x)
		return f.print(out, l, l.print)
	})
	f.addFlag(c, "a table")
	return c
}

func listOf(x *copies.Index) *copyList {
	l := &copyList{Others: x.Other}
	for _, line := range x.Lines() {
		c := line.Coverage()
		row := copyLine{
			Epochs: c.Epochs, Spans: []copySpan{}, Images: c.Images, Segments: c.Segments, Bytes: c.Bytes, Encrypted: c.Encrypted,
		}
		for _, s := range c.Spans {
			row.Spans = append(row.Spans, copySpan{
				s.First.Time.UTC(), s.First.Revision, s.Last.Time.UTC(), s.Last.Revision,
			})
		}
		l.Lines = append(l.Lines, row)
	}
	return l
}

func (l *copyList) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "EPOCHS\tFIRST MOMENT\tREVISION\tLAST MOMENT\tREVISION\tIMAGES\tSEGMENTS\tSIZE\tENCRYPTED")
	for _, line := range l.Lines {
		encrypted := "no"
		if line.Encrypted {
			encrypted = "yes"
		}
		epochs := strconv.FormatInt(line.Epochs[0], 10)
		if n := len(line.Epochs); n > 1 {
			epochs = fmt.Sprintf("%d-%d", line.Epochs[n-1], line.Epochs[0])
		}
		rest := fmt.Sprintf("%d\t%d\t%s\t%s", line.Images, line.Segments, megabytes(line.Bytes), encrypted)
		if len(line.Spans) == 0 {
			fmt.Fprintf(w, "%s\tnone\t\tnone\t\t%s\n", epochs, rest)
		}
		for _, s := range line.Spans {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\n", epochs, s.FirstTime.Format(copies.TimeFormat), s.FirstRevision,
				s.LastTime.Format(copies.TimeFormat), s.LastRevision, rest)
			epochs, rest = "", "\t\t\t"
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range l.Others {
		fmt.Fprintf(out, "%s is no part of a copy\n", name)
	}
	return nil
}

// copyVerified is the output of `keelson backup verify -o json`.
type copyVerified struct {
	copies.Verified
	Problems []copies.Problem `json:"problems"`
	// Others are objects that are no part of a copy.
	Others []string `json:"others,omitempty"`
}

func newBackupVerify(out, errOut io.Writer) *cobra.Command {
	p, f, identity := &copyPlace{}, &outputFormat{}, ""
	c := copyCommand(&cobra.Command{
		Use: "verify", Short: "Read a whole copy and say what is wrong with it",
		Long: "Verify reads every object of a copy, makes all changes again in memory, and\n" +
			"compares the state with each image. It finds damage, missing changes and objects\n" +
			"that are not what their names say. What is wrong is printed, one line each, and\n" +
			"the exit code is 1. It needs no space on the disk, but memory: 100 to 200 bytes\n" +
			"for each object. The server may write to the copy meanwhile.",
		Example: "  keelson backup verify --from /mnt/copy --identity key.txt",
	}, p, f, func(ctx context.Context, b bucket.Bucket) error {
		identities, err := readIdentities(identity)
		if err != nil {
			return err
		}
		return verifyCopy(ctx, out, errOut, b, p, f, identities)
	})
	f.addFlag(c, "text")
	c.Flags().StringVar(&identity, "identity", "", copyIdentityUsage)
	return c
}

func verifyCopy(
	ctx context.Context, out, errOut io.Writer, b bucket.Bucket, p *copyPlace, f *outputFormat, identities []age.Identity,
) error {
	x, err := p.index(ctx, b)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, line := range x.Lines() {
		total += line.Coverage().Bytes
	}
	result := copyVerified{Problems: []copies.Problem{}, Others: x.Other}
	var read counter
	bar := startProgress(errOut, "Reading", megabytes, read.of(total))
	result.Verified, err = copies.Verify(ctx, &countedBucket{b, &read}, identities, func(problem copies.Problem) {
		result.Problems = append(result.Problems, problem)
	})
	bar.stop()
	if err != nil {
		return p.explain(err)
	}
	if err := f.print(out, &result, result.print); err != nil {
		return err
	}
	switch n := len(result.Problems); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 thing is wrong with the copy in %s", p.url)
	default:
		return fmt.Errorf("%d things are wrong with the copy in %s", n, p.url)
	}
}

func (r *copyVerified) print(out io.Writer) error {
	for _, problem := range r.Problems {
		fmt.Fprintln(out, problem)
	}
	for _, name := range r.Others {
		fmt.Fprintf(out, "%s is no part of a copy\n", name)
	}
	_, err := fmt.Fprintf(out, "Verified %d lines of history: %d images, %d segments with %d transactions, up to %d keys\n",
		r.Lines, r.Images, r.Segments, r.Transactions, r.Keys)
	if r.Contained > 0 {
		fmt.Fprintf(out, "%d segments are in others too, as after a merge that was interrupted; a running server removes them\n", r.Contained)
	}
	return err
}

// countedBucket counts the bytes that are read.
type countedBucket struct {
	bucket.Bucket
	read *counter
}

func (b *countedBucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := b.Bucket.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return &countedObject{in, b.read}, nil
}

type countedObject struct {
	io.ReadCloser
	read *counter
}

func (o *countedObject) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	o.read.Add(int64(n))
	return n, err
}

// copyPruned is the output of `keelson backup prune -o json`.
type copyPruned struct {
	DryRun  bool           `json:"dryRun"`
	Removed []prunedObject `json:"removed"`
	Bytes   int64          `json:"bytes"`
}

type prunedObject struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // in bytes
}

func newBackupPrune(out io.Writer) *cobra.Command {
	p, f, retention, dry := &copyPlace{}, &outputFormat{}, "", false
	c := copyCommand(&cobra.Command{
		Use: "prune", Short: "Remove what is older than a retention",
		Long: "Prune removes what no moment of the retention needs, by the rule by which a\n" +
			"running server does it (--backup-retention): the newest image that is older\n" +
			"stays, with everything after it, so that all younger moments can be restored.\n" +
			"Other lines of history go when the newest one covers the retention. The server\n" +
			"may write to the copy meanwhile.",
		Example: "  keelson backup prune --from /mnt/copy --retention 7d --dry-run",
	}, p, f, func(ctx context.Context, b bucket.Bucket) error {
		if retention == "" {
			return errors.New("--retention must say how far back states can be restored, such as 7d")
		}
		keep, err := parseAge(retention)
		if err != nil {
			return fmt.Errorf("--retention: %w", err)
		}
		x, err := p.index(ctx, b)
		if err != nil {
			return err
		}
		done, err := prune(ctx, b, x.Unneeded(time.Now().Add(-keep)), dry)
		return errors.Join(f.print(out, done, done.print), err)
	})
	f.addFlag(c, "text")
	c.Flags().StringVar(&retention, "retention", "", "how far back states can still be restored, such as 36h or 7d")
	c.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed, and remove nothing")
	return c
}

// prune removes objects, unless dry is true. It returns what it has removed, also if it fails.
func prune(ctx context.Context, b bucket.Bucket, list []bucket.Object, dry bool) (*copyPruned, error) {
	done := &copyPruned{DryRun: dry, Removed: []prunedObject{}}
	for _, o := range list {
		if !dry {
			if err := b.Delete(ctx, o.Name); err != nil {
				return done, oneLine(err)
			}
		}
		done.Removed = append(done.Removed, prunedObject{o.Name, o.Size})
		done.Bytes += o.Size
	}
	return done, nil
}

func (d *copyPruned) print(out io.Writer) error {
	said, sum := "removed", "Removed"
	if d.DryRun {
		said, sum = "would be removed", "Would remove"
	}
	for _, o := range d.Removed {
		fmt.Fprintf(out, "%s (%s) %s\n", o.Name, megabytes(o.Size), said)
	}
	_, err := fmt.Fprintf(out, "%s %d objects of %s\n", sum, len(d.Removed), megabytes(d.Bytes))
	return err
}
