// Package offsite keeps a copy of the store elsewhere, in a directory or in a bucket of an S3 service (--backup-to). The copy is made by
// internal/storage/copies; this package connects it with the configuration, health and metrics.
package offsite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/mirror"
)

const (
	// lockTime is how long the lock of the copy is valid after it was renewed. A server on another machine with the same place for its
	// copy waits that long after this one was killed. If a standby may take over, Backup.LockDuration takes its place.
	lockTime = time.Minute
	// finishTime limits how long a server that stops tries to copy its last changes.
	finishTime = 5 * time.Second
	// slack is how much older than the interval the oldest change that is not copied may be before the copy counts as late.
	slack = 10 * time.Second
)

// Copy is the copy of a store that a server keeps.
type Copy struct {
	config      *config.Storage
	bucket      bucket.Bucket
	closeBucket func() error
	recipients  []age.Recipient
	metrics     *metrics.Metrics
	log         *slog.Logger

	// The following is set by Attach.
	attached chan struct{} // closed by Attach
	shipper  *copies.Shipper
	store    copies.Store
	began    time.Time
}

// Open opens the place of the copy. It writes nothing there. It returns nil if no copy is configured.
func Open(ctx context.Context, c *config.Storage, m *metrics.Metrics, log *slog.Logger) (*Copy, error) {
	if c.Backup.To == "" {
		return nil, nil
	}
	recipients, err := ReadRecipients(c.Backup.RecipientsFile)
	if err != nil {
		return nil, err
	}
	b, closeBucket, err := openPlace(ctx, &c.Backup)
	if err != nil {
		return nil, err
	}
	return &Copy{
		config: c, bucket: b, closeBucket: closeBucket, recipients: recipients, metrics: m, log: log, attached: make(chan struct{}),
	}, nil
}

// openPlace opens the place of a copy. The caller closes it.
func openPlace(ctx context.Context, c *config.Backup) (b bucket.Bucket, closeBucket func() error, err error) {
	b, closeBucket, err = bucket.Open(ctx, c.To, bucket.Options(c.S3))
	if err != nil {
		err = config.Errorf("{Storage.Backup.To}: %w", err)
	}
	return b, closeBucket, err
}

// Source is what is copied.
type Source struct {
	Store storage.Store
	// Name says to people which server this is.
	Name string
	// Keys returns the files that go into images, if the configuration asks for them.
	Keys func(context.Context) (map[string][]byte, error)
	// Lost is called when another server has taken over, if the copy is exclusive.
	Lost func(error)
	// Handover is where the server goes on, if it takes over itself.
	Handover *copies.Handover
}

// Attach says what is copied. The data directory is locked. If the copy is exclusive, Attach takes its lock. y may be nil.
func (y *Copy) Attach(ctx context.Context, source Source) error {
	if y == nil {
		return nil
	}
	store, identity, err := y.copied(ctx, source.Store)
	if err != nil {
		return err
	}
	c, record := &y.config.Backup, ""
	if y.config.Backend != config.StorageMemory {
		record = datadir.CopyRecord(y.config.DataDir)
	}
	holder, err := copies.Holder(record, c.To)
	if err != nil {
		return err
	}
	options := copies.Options{
		Store: store, Bucket: y.bucket, Interval: c.Interval, Retention: c.Retention, Recipients: y.recipients,
		Program: version.Program(), Record: record, To: c.To, Now: time.Now, Log: y.log,
		Lock: &copies.Lock{Bucket: y.bucket, Holder: holder, Name: source.Name, Source: identity, Time: lockTime, Since: copies.SinceBoot},
	}
	if c.Keys {
		options.Files = source.Keys
	}
	if c.Exclusive {
		options.Lost = source.Lost
		options.Lock.Time, options.Lock.Strict, options.Lock.Exclusive = c.LockDuration, true, true
	}
	if source.Handover != nil {
		options.Handover, options.Lock = source.Handover, source.Handover.Lock
		options.Lock.Bucket = y.bucket
	}
	if y.shipper, err = copies.NewShipper(options); err != nil {
		return err
	}
	if c.Exclusive {
		if err := y.begin(ctx, source.Handover); err != nil {
			return errors.Join(err, options.Lock.Release(ctx))
		}
	}
	y.store, y.began = store, time.Now()
	y.register(y.metrics)
	close(y.attached)
	return nil
}

// copied returns the store that is copied, and Lock.Source.
func (y *Copy) copied(ctx context.Context, s storage.Store) (store copies.Store, identity string, err error) {
	cluster, ok := s.(*mirror.Store)
	if !ok {
		store, ok = s.(copies.Store)
		if !ok {
			err = errors.New("the store has no changes that can be copied")
		}
		return store, "", err
	}
	if y.config.Etcd.Overrides != nil {
		y.log.Warn("the copy of the data does not have the resources of --etcd-servers-overrides")
	}
	identity, err = cluster.Identity(ctx)
	return cluster.Mirror, identity, err
}

// begin makes sure that this server may write, and that it has all changes of the copy.
func (y *Copy) begin(ctx context.Context, h *copies.Handover) error {
	if err := y.acquire(ctx); err != nil {
		return err
	}
	if h != nil {
		if err := h.Lock.Renew(ctx); err != nil {
			return err
		}
	}
	if h != nil && h.Next > 0 {
		return y.shipper.TakeOver(ctx)
	}
	err := y.shipper.Check(ctx)
	if h == nil || !errors.Is(err, copies.ErrForeign) {
		return err
	}
	record := datadir.CopyRecord(y.config.DataDir)
	follow := func(r *copies.Record) { r.Epoch = 0 } // the next standby follows the copy
	return errors.Join(err, copies.UpdateRecord(record, y.config.Backup.To, follow))
}

// acquire takes the lock. Another server that holds it may have been killed, so it waits twice the time after which its lock ends.
func (y *Copy) acquire(ctx context.Context) error {
	for began := time.Now(); ; {
		err := y.shipper.Acquire(ctx)
		var held *copies.HeldError
		if !errors.As(err, &held) {
			return err
		}
		if time.Since(began) > 2*y.config.Backup.LockDuration {
			return fmt.Errorf("%w; to take over when it is gone, run keelson standby", err)
		}
		if err := background.Sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// Valid returns the function that reports whether no other server can have taken over, nil if the copy is not exclusive. y may be nil.
func (y *Copy) Valid() func() bool {
	if y == nil || !y.config.Backup.Exclusive {
		return nil
	}
	return y.shipper.Lock.Valid
}

// Confirm returns the function that the store calls before it answers a change, nil if it does not wait for the copy. y may be nil.
func (y *Copy) Confirm() func(ctx context.Context, revision int64) error {
	if y == nil || y.config.Backup.Mode != config.BackupSync && !y.config.Backup.Exclusive {
		return nil
	}
	return func(ctx context.Context, revision int64) error {
		select {
		case <-y.attached:
		case <-ctx.Done():
			return ctx.Err()
		}
		if y.config.Backup.Mode != config.BackupSync {
			return y.shipper.AwaitLock(ctx)
		}
		return y.shipper.Confirm(ctx, revision)
	}
}

// ReadRecipients reads the file of --backup-recipients-file. "" means that the copy is not encrypted.
func ReadRecipients(path string) ([]age.Recipient, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, config.Errorf("{Storage.Backup.RecipientsFile}: %w", err)
	}
	defer f.Close()
	recipients, err := age.ParseRecipients(f)
	if err != nil {
		// The error of age may quote a line of the file, which may be a secret key.
		return nil, config.Errorf("{Storage.Backup.RecipientsFile}: %s must have public keys of age (age1...), one on each line", path)
	}
	return recipients, nil
}

// Run keeps the copy up to date until ctx ends.
func (y *Copy) Run(ctx context.Context) { y.shipper.Run(ctx) }

// Finish copies the last changes of a server that stops, and gives the lock up. If the changes cannot be copied, the log says so and the
// lock ends by itself: until then only this server can take it, and copy them. y may be nil.
func (y *Copy) Finish(ctx context.Context) {
	if y == nil || y.shipper == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- y.shipper.Finish(ctx) }() // a directory on a network file system may not answer at all
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		y.log.Error("the server stops, and the copy of the data does not have the last changes", "error", err)
	}
}

// Close closes the place of the copy. y may be nil.
func (y *Copy) Close() error {
	if y == nil {
		return nil
	}
	return y.closeBucket()
}

// Bucket returns the place of the copy, nil if there is none. y may be nil.
func (y *Copy) Bucket() bucket.Bucket {
	if y == nil {
		return nil
	}
	return y.bucket
}

// Behind is how much of the store is not in the copy.
type Behind struct {
	// Revisions is the number of changes, Bytes the size of their keys and values.
	Revisions, Bytes int64
	// Time is the age of the oldest of them.
	Time time.Duration
}

// Behind returns how far the copy is behind.
func (y *Copy) Behind(ctx context.Context) Behind {
	status, current := y.shipper.Status(), y.store.Stats()
	if current.Revision <= status.Revision {
		return Behind{}
	}
	b := Behind{Revisions: current.Revision - status.Revision, Bytes: max(current.WrittenBytes-status.StoreBytes, 0)}
	oldest, _, err := y.store.WrittenAt(ctx, status.Revision+1)
	if err != nil || oldest.IsZero() {
		oldest = y.began // it is not known any more
	}
	b.Time = max(time.Since(oldest), 0)
	return b
}

// Warning describes a copy that is late or cannot be written, "" if there is nothing to warn of. Everybody may read it. y may be nil.
func (y *Copy) Warning() string {
	if y == nil {
		return ""
	}
	status := y.shipper.Status()
	if status.Err != nil {
		return fmt.Sprintf("the copy of the data (--backup-to) cannot be written since %s; the log says why",
			status.Failing.UTC().Format(time.RFC3339))
	}
	if b := y.Behind(context.Background()); b.Time > y.config.Backup.Interval+slack {
		return "the copy of the data (--backup-to) is late: " + b.String()
	}
	return ""
}

// Remark says how far the copy is. y may be nil.
func (y *Copy) Remark() string {
	if y == nil {
		return ""
	}
	if other := y.shipper.Status().Other; other != "" {
		return "the copy of the data is written by " + other
	}
	return "the copy of the data is " + y.Behind(context.Background()).String()
}

func (b Behind) String() string {
	return fmt.Sprintf("%.1f seconds, %d revisions and %d bytes behind", b.Time.Seconds(), b.Revisions, b.Bytes)
}

// register registers the metrics.
func (y *Copy) register(m *metrics.Metrics) {
	counter := func(name, help string, value func() int64) {
		m.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
	gauge := func(name, help string, of func(Behind) float64) {
		m.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return of(y.Behind(context.Background())) }))
	}
	gauge("keelson_backup_behind_seconds", "Age of the oldest change that is not in the copy of --backup-to, 0 if there is none.",
		func(b Behind) float64 { return b.Time.Seconds() })
	gauge("keelson_backup_behind_revisions", "Number of changes that are not in the copy of --backup-to.",
		func(b Behind) float64 { return float64(b.Revisions) })
	gauge("keelson_backup_behind_bytes", "Size of the keys and values of the changes that are not in the copy of --backup-to.",
		func(b Behind) float64 { return float64(b.Bytes) })
	m.GaugeFunc("keelson_backup_failing_since_timestamp_seconds", "Since when the copy of --backup-to cannot be written, in seconds since "+
		"the epoch; 0 if it can.", func() int64 {
		if at := y.shipper.Status().Failing; !at.IsZero() {
			return at.Unix()
		}
		return 0
	})
	counter("keelson_backup_objects_total", "Number of objects that were written to the copy of --backup-to.",
		func() int64 { return y.shipper.Status().Objects })
	counter("keelson_backup_written_bytes_total", "Size of the objects that were written to the copy of --backup-to.",
		func() int64 { return y.shipper.Status().Bytes })
	counter("keelson_backup_images_total", "Number of images of the whole data that were written to the copy of --backup-to.",
		func() int64 { return y.shipper.Status().Images })
}
