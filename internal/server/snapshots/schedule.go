package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

const (
	// directoryName is the default directory of scheduled snapshots, in the data directory.
	directoryName = "backups"
	// reserve is the free space that scheduled snapshots leave on a disk: twice the space below which the store
	// refuses writes, because the store writes too while a snapshot is written.
	reserve = 2 * embedded.DefaultReserveBytes
	// retryTime limits the time between a failed snapshot and the next one.
	retryTime = 5 * time.Minute
)

// encryptionConfigName is the name, within a snapshot, of the file of --encryption-provider-config.
const encryptionConfigName = "encryption-provider-config.yaml"

// Schedule writes snapshots of a store to a directory at an interval. Its lock of the directory keeps other
// servers from removing these snapshots as too old.
type Schedule struct {
	// Store is the store. It is set before Run.
	Store Exporter
	// MakeKeys, unless it is nil, creates keys that the server otherwise creates only when they are needed. It is
	// called before keys are read: a token that is signed after the snapshot must also be valid on a server that
	// is restored from it.
	MakeKeys func(context.Context) error

	directory *backup.Directory
	lock      *datadir.Lock
	interval  time.Duration
	past      bool // whether snapshots also contain the history
	// files returns what the snapshots contain besides the state of the store.
	files   func() (map[string][]byte, error)
	metrics snapshotMetrics
	log     *slog.Logger
}

// snapshotMetrics are the metrics of scheduled snapshots.
type snapshotMetrics struct {
	succeeded, failed prometheus.Counter
	last, size        prometheus.Gauge
}

func newMetrics(m *metrics.Metrics, interval time.Duration) snapshotMetrics {
	m.GaugeFunc("keelson_snapshot_interval_seconds", "Time between two scheduled snapshots (--snapshot-schedule).",
		func() int64 { return int64(interval / time.Second) })
	total := metrics.Resolve(m.Counters("keelson_snapshots_total", "Number of scheduled snapshots by status: success, failure.",
		"status"), "success", "failure")
	return snapshotMetrics{
		succeeded: total["success"], failed: total["failure"],
		last: m.Gauges("keelson_snapshot_last_success_timestamp_seconds", "Time of the state in the newest scheduled snapshot, "+
			"in seconds since the epoch; 0 if there is none.").WithLabelValues(),
		size: m.Gauges("keelson_snapshot_last_size_bytes", "Size of the last scheduled snapshot that this process wrote.").
			WithLabelValues(),
	}
}

// Open creates the directory of scheduled snapshots and locks it. It returns nil if none are configured, and an error if another
// server uses the directory.
func Open(c *config.Storage, m *metrics.Metrics, log *slog.Logger) (*Schedule, error) {
	if c.Snapshots.Interval == 0 {
		return nil, nil
	}
	recipients, err := ParseRecipients(c.Snapshots.Recipients)
	if err != nil {
		return nil, err
	}
	dir := c.Snapshots.Dir
	if dir == "" {
		dir = filepath.Join(c.DataDir, directoryName)
	}
	lock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	datadir.WarnOfWriters(dir, log)
	s := &Schedule{
		directory: &backup.Directory{Path: dir, Keep: c.Snapshots.Keep, Recipients: recipients, Reserve: reserve},
		lock:      lock, interval: c.Snapshots.Interval, past: c.Snapshots.History,
		files:   func() (map[string][]byte, error) { return nil, nil },
		metrics: newMetrics(m, c.Snapshots.Interval), log: log,
	}
	if len(recipients) > 0 {
		s.files = func() (map[string][]byte, error) { return KeyFiles(c.DataDir, c.EncryptionConfigFile) }
	}
	return s, nil
}

func lockDirectory(dir string) (*datadir.Lock, error) {
	if err := datadir.Make(dir); err != nil {
		return nil, config.Errorf("{Storage.Snapshots.Dir}: cannot use %s: %w", dir, datadir.Cause(err))
	}
	lock, err := datadir.LockDir(dir)
	switch {
	case errors.Is(err, datadir.ErrLocked):
		return nil, config.Errorf("{Storage.Snapshots.Dir}: %s is used by another server; each needs a directory of its own", dir)
	case err != nil:
		return nil, config.Errorf("{Storage.Snapshots.Dir}: cannot use %s: %w", dir, datadir.Cause(err))
	}
	return lock, nil
}

// Close releases the directory. s may be nil.
func (s *Schedule) Close() error {
	if s == nil {
		return nil
	}
	return s.lock.Close()
}

// ParseRecipients parses Storage.Snapshots.Recipients, public keys of age. Its errors never contain a secret key.
func ParseRecipients(keys []string) (recipients []age.Recipient, err error) {
	for _, key := range keys {
		if strings.HasPrefix(strings.ToUpper(strings.TrimSpace(key)), "AGE-SECRET-KEY-") {
			return nil, config.Errorf("{Storage.Snapshots.Recipients} is a secret key of age: name the public key, which age-keygen -y prints")
		}
		parsed, err := age.ParseRecipients(bytes.NewReader([]byte(key)))
		if err != nil {
			return nil, config.Errorf("{Storage.Snapshots.Recipients}: %q is not a public key of age: %w", key, err)
		}
		recipients = append(recipients, parsed...)
	}
	return recipients, nil
}

// KeyFiles reads the keys and certificates of a data directory, and the encryption configuration. "" means no such
// path.
func KeyFiles(dataDir, encryption string) (map[string][]byte, error) {
	files := map[string][]byte{}
	if encryption != "" {
		content, err := os.ReadFile(encryption)
		if err != nil {
			return nil, err
		}
		files[encryptionConfigName] = content
	}
	if dataDir == "" {
		return files, nil
	}
	pki := os.DirFS(datadir.Certificates(dataDir))
	return files, fs.WalkDir(pki, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files[datadir.PKI+"/"+path], err = fs.ReadFile(pki, path)
		return err
	})
}

// Run writes snapshots until ctx ends. After a failure it tries again after retryTime.
func (s *Schedule) Run(ctx context.Context) {
	for wait := s.first(time.Now()); background.Sleep(ctx, wait) == nil; {
		wait = s.interval
		if err := s.save(ctx); err != nil && ctx.Err() == nil {
			wait = min(s.interval, retryTime)
			s.metrics.failed.Inc()
			s.log.Error("a scheduled snapshot failed; earlier ones are kept", "error", err, "next", wait)
		}
	}
}

// first returns the time until the first snapshot. A restart neither delays a snapshot nor adds one. If the
// directory cannot be read, the time is 0, and the snapshot then fails with that error.
func (s *Schedule) first(now time.Time) time.Duration {
	newest, err := s.directory.Newest()
	if err != nil || newest.IsZero() {
		return 0
	}
	s.metrics.last.Set(float64(newest.Unix()))
	return untilNext(newest, now, s.interval)
}

// untilNext returns the time until the next snapshot is due. newest is the time of the last one; it may be in the future, if
// the clock was set back.
func untilNext(newest, now time.Time, interval time.Duration) time.Duration {
	return min(max(newest.Add(interval).Sub(now), 0), interval)
}

// keys returns the files of keys for a snapshot, none unless snapshots are encrypted.
func (s *Schedule) keys(ctx context.Context) (map[string][]byte, error) {
	if s.MakeKeys != nil && len(s.directory.Recipients) > 0 {
		if err := s.MakeKeys(ctx); err != nil {
			return nil, err
		}
	}
	return s.files()
}

// save writes one snapshot.
func (s *Schedule) save(ctx context.Context) error {
	created := time.Now()
	files, err := s.keys(ctx)
	if err != nil {
		return fmt.Errorf("the keys of the server cannot be read: %w", err)
	}
	e, err := s.Store.Export(ctx)
	if err != nil {
		return err
	}
	name, size, err := s.directory.Save(created, func(w io.Writer) error {
		_, err := backup.Save(ctx, w, e, backup.SaveOptions{Created: created, Program: version.Program(), Files: files, Past: s.past})
		return err
	})
	if err = errors.Join(err, e.Close()); err != nil {
		return err
	}
	s.metrics.succeeded.Inc()
	s.metrics.last.Set(float64(created.Unix()))
	s.metrics.size.Set(float64(size))
	s.log.Info("wrote a snapshot", "file", filepath.Join(s.directory.Path, name), "bytes", size, "took", time.Since(created))
	if err := s.directory.Prune(name); err != nil {
		s.log.Error("an old snapshot was not removed", "error", err)
	}
	return nil
}
