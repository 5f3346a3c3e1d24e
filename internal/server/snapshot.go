package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// SnapshotPath is the path at which a POST returns the whole state of the store, in the format of internal/storage/snapshot.
// The state has all Secrets. So neither path nor method is one that roles commonly allow: roles for monitoring and for
// reading allow GET of many paths, and roles for profiling all methods below /debug.
const SnapshotPath = "/keelson/snapshot"

// snapshotStall limits each write to the client. While a snapshot is read, the store keeps the files of its state.
const snapshotStall = time.Minute

// exporter is a store whose state can be exported while it is used.
type exporter interface {
	Export(ctx context.Context) (*embedded.Export, error)
}

// snapshots serves SnapshotPath.
type snapshots struct {
	store exporter // nil where it cannot be had
	log   *slog.Logger
}

func newSnapshots(store storage.Store, log *slog.Logger) *snapshots {
	e, _ := store.(exporter)
	return &snapshots{e, log}
}

func (h *snapshots) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		apiresponse.Error(w, r, apierr.PathMethodNotAllowed())
		return
	case h.store == nil:
		apiresponse.Error(w, r, apierr.New(http.StatusNotImplemented, "NotImplemented", "this server's data is in etcd: "+
			"use `etcdctl snapshot save`"))
		return
	}
	// After the first byte no error can be sent.
	if files, ok := h.store.(storage.DamageCounter); ok && files.DamagedFiles() > 0 {
		apiresponse.Error(w, r, apierr.New(http.StatusInternalServerError, metav1.StatusReasonInternalError, "data on the disk of "+
			"the server is damaged: stop it and use keelson snapshot save --skip-damaged"))
		return
	}
	created := time.Now()
	e, err := h.store.Export(r.Context())
	if err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &deadlineWriter{w, http.NewResponseController(w)}
	_, err = backup.Save(r.Context(), out, e, backup.SaveOptions{
		Created: created, Program: Program(), Past: r.URL.Query().Get("history") == "true",
	})
	if err = errors.Join(err, e.Close()); err != nil {
		h.log.Warn("a snapshot was not sent to its end", "error", err)
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

// deadlineWriter sets a deadline for each write.
type deadlineWriter struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	err := p.connection.SetWriteDeadline(time.Now().Add(snapshotStall))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// Program is the name of this program in the files that it writes.
func Program() string { return "keelson " + version.Keelson }

// LockDataDir locks the data directory against other processes until release is called. It creates the directory if
// it is missing.
func LockDataDir(dir string) (release func() error, err error) {
	lock, err := lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}

// ErrDataDirUsed is returned if another process uses the data directory.
var ErrDataDirUsed = config.Errorf("used by another process; stop that, or name another directory with {Storage.DataDir}")

// StoreDir returns the directory of the embedded engine in a data directory.
func StoreDir(dataDir string) string { return filepath.Join(dataDir, storeName) }

// RestoringName is the name of the directory in which a restore builds the store before it is renamed.
const RestoringName = "store.restoring"

// RepairedCopyDir returns the directory, in a data directory, of a copy of the store that `keelson check` and `keelson snapshot save
// --skip-damaged` repair to see what can be read. Undamaged tables in it are links. Who holds the lock of the data directory may remove it.
func RepairedCopyDir(dataDir string) string { return filepath.Join(dataDir, "store.copy") }

// CertificateDir returns the directory in which the server keeps its own certificates.
func CertificateDir(dataDir string) string { return filepath.Join(dataDir, pkiName) }

// KubeconfigFile returns the path of the administrator's kubeconfig in a data directory.
func KubeconfigFile(dataDir string) string { return filepath.Join(dataDir, kubeconfigName) }
