package server

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
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

const (
	// backupsName is the default directory of scheduled snapshots, in the data directory.
	backupsName = "backups"
	// snapshotReserve is the free space that scheduled snapshots leave on a disk: twice the space below which the store
	// refuses writes, because the store writes too while a snapshot is written.
	snapshotReserve = 2 * embedded.DefaultReserveBytes
	// snapshotRetry limits the time between a failed snapshot and the next one.
	snapshotRetry = 5 * time.Minute
)

// EncryptionConfigName is the name that a snapshot has for the file of --encryption-provider-config.
const EncryptionConfigName = "encryption-provider-config.yaml"

// scheduledSnapshots writes snapshots at an interval.
type scheduledSnapshots struct {
	store     exporter
	directory *backup.Directory
	interval  time.Duration
	past      bool // whether they have the history too
	// files returns what the snapshots contain besides the state of the store.
	files   func(context.Context) (map[string][]byte, error)
	metrics snapshotMetrics
	log     *slog.Logger
}

// snapshotMetrics are the metrics of scheduled snapshots.
type snapshotMetrics struct {
	succeeded, failed prometheus.Counter
	last, size        prometheus.Gauge
}

func newSnapshotMetrics(m *metrics.Metrics, interval time.Duration) snapshotMetrics {
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

// openSnapshots creates the directory of scheduled snapshots.
func (s *starting) openSnapshots() error {
	c := &s.config.Storage
	if c.Snapshots.Interval == 0 {
		return nil
	}
	recipients, err := parseRecipients(c.Snapshots.Recipients)
	if err != nil {
		return err
	}
	dir := c.Snapshots.Dir
	if dir == "" {
		dir = filepath.Join(c.DataDir, backupsName)
	}
	if err := makeDir(dir); err != nil {
		return config.Errorf("{Storage.Snapshots.Dir}: cannot use %s: %w", dir, cause(err))
	}
	// Another server would remove this one's snapshots as too old.
	switch lock, err := lockDir(dir); {
	case errors.Is(err, errLocked):
		return config.Errorf("{Storage.Snapshots.Dir}: %s is used by another server; each needs a directory of its own", dir)
	case err != nil:
		return config.Errorf("{Storage.Snapshots.Dir}: cannot use %s: %w", dir, cause(err))
	default:
		if s.dataDir == nil {
			s.dataDir = &dataDir{}
		}
		s.dataDir.snapshots = lock
	}
	warnOfWriters(dir, s.log)
	s.snapshots = &scheduledSnapshots{
		directory: &backup.Directory{
			Path: dir, Keep: c.Snapshots.Keep, Recipients: recipients, Reserve: snapshotReserve,
		},
		interval: c.Snapshots.Interval, past: c.Snapshots.History, files: func(context.Context) (map[string][]byte, error) { return nil, nil },
		metrics: newSnapshotMetrics(s.metrics, c.Snapshots.Interval), log: s.log,
	}
	if len(recipients) > 0 {
		s.snapshots.files = func(ctx context.Context) (map[string][]byte, error) {
			// A new server makes this key only when it is needed. A token that is signed after the snapshot has to be valid
			// on a server that is restored from it.
			if keys := s.authentication.keys.own; keys != nil {
				if err := keys.EnsureOwnKeyFile(ctx); err != nil {
					return nil, err
				}
			}
			return keyFiles(c.DataDir, c.EncryptionConfigFile)
		}
	}
	return nil
}

// startSnapshots starts to write scheduled snapshots.
func (s *starting) startSnapshots() {
	if s.snapshots == nil {
		return
	}
	s.snapshots.store, _ = s.stores.main.(exporter)
	s.work.Go("scheduled snapshots", background.Forever(s.snapshots.run))
}

// parseRecipients parses Storage.Snapshots.Recipients.
func parseRecipients(keys []string) (recipients []age.Recipient, err error) {
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

// keyFiles reads the keys and certificates of a data directory, and the encryption configuration, whose names may be "".
func keyFiles(dataDir, encryption string) (map[string][]byte, error) {
	files := map[string][]byte{}
	if encryption != "" {
		content, err := os.ReadFile(encryption)
		if err != nil {
			return nil, err
		}
		files[EncryptionConfigName] = content
	}
	if dataDir == "" {
		return files, nil
	}
	pki := os.DirFS(filepath.Join(dataDir, pkiName))
	return files, fs.WalkDir(pki, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files[pkiName+"/"+path], err = fs.ReadFile(pki, path)
		return err
	})
}

// run writes snapshots until ctx ends.
func (s *scheduledSnapshots) run(ctx context.Context) {
	for wait := s.first(time.Now()); sleep(ctx, wait) == nil; {
		wait = s.interval
		if err := s.save(ctx); err != nil && ctx.Err() == nil {
			wait = min(s.interval, snapshotRetry)
			s.metrics.failed.Inc()
			s.log.Error("a scheduled snapshot failed; earlier ones are kept", "error", err, "next", wait)
		}
	}
}

// first returns the time until the first snapshot. A restart neither delays a snapshot nor adds one. If the directory cannot
// be read, a snapshot is due, and fails.
func (s *scheduledSnapshots) first(now time.Time) time.Duration {
	newest, err := s.directory.Newest()
	if err != nil || newest.IsZero() {
		return 0
	}
	s.metrics.last.Set(float64(newest.Unix()))
	return untilNext(newest, now, s.interval)
}

// untilNext returns the time until a snapshot is due whose predecessor is of the time newest. That may be in the future, if the
// clock was set back.
func untilNext(newest, now time.Time, interval time.Duration) time.Duration {
	return min(max(newest.Add(interval).Sub(now), 0), interval)
}

// save writes one snapshot.
func (s *scheduledSnapshots) save(ctx context.Context) error {
	created := time.Now()
	files, err := s.files(ctx)
	if err != nil {
		return fmt.Errorf("the keys of the server cannot be read: %w", err)
	}
	e, err := s.store.Export(ctx)
	if err != nil {
		return err
	}
	name, size, err := s.directory.Save(created, func(w io.Writer) error {
		_, err := backup.Save(ctx, w, e, backup.SaveOptions{Created: created, Program: Program(), Files: files, Past: s.past})
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
