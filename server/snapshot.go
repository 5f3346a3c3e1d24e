package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/server/version"
	"github.com/keelson-dev/keelson/storage"
	"github.com/keelson-dev/keelson/storage/backup"
	"github.com/keelson-dev/keelson/storage/embedded"
)

// SnapshotPath serves members of system:masters the whole state of the store, in
// the format of storage/snapshot.
const SnapshotPath = "/debug/keelson/snapshot"

// snapshotStall is how long a client may take to read a piece of a snapshot: while
// one is read the store keeps the files of its state.
const snapshotStall = time.Minute

// exporter is a store whose state can be had while it is in use.
type exporter interface {
	Export(ctx context.Context) (*embedded.Export, error)
}

// snapshots answers SnapshotPath.
type snapshots struct {
	store exporter // nil where it cannot be had
	log   *slog.Logger
}

func newSnapshots(store storage.Store, log *slog.Logger) *snapshots {
	e, _ := store.(exporter)
	return &snapshots{e, log}
}

// ServeHTTP does not leave it to authorization alone: a snapshot has every secret.
func (h *snapshots) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := request.UserFrom(r.Context())
	switch {
	case user == nil || !user.InGroup(request.GroupMasters):
		apiresponse.Error(w, r, apierr.New(http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden: snapshots are "+
			"for members of "+request.GroupMasters))
		return
	case r.Method != http.MethodGet:
		apiresponse.Error(w, r, apierr.PathMethodNotAllowed())
		return
	case h.store == nil:
		apiresponse.Error(w, r, apierr.New(http.StatusNotImplemented, "NotImplemented", "this server's data is in etcd: "+
			"use `etcdctl snapshot save`"))
		return
	}
	created := time.Now()
	e, err := h.store.Export(r.Context())
	if err != nil {
		apiresponse.Error(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, err = backup.Save(r.Context(), &patient{w, http.NewResponseController(w)}, e, created, Program())
	if err = errors.Join(err, e.Close()); err != nil {
		h.log.Warn("a snapshot was not sent to its end", "error", err)
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

// patient gives each write a deadline of its own.
type patient struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	err := p.connection.SetWriteDeadline(time.Now().Add(snapshotStall))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// Program is what this program calls itself in the files that it writes.
func Program() string { return "keelson " + version.Keelson }

// LockDataDir keeps the data directory from any other process until release is
// called. It makes the directory if it is missing.
func LockDataDir(dir string) (release func() error, err error) {
	lock, err := lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}

// ErrDataDirUsed says that another process has the data directory.
var ErrDataDirUsed = errors.New("used by another process")

// StoreDir is where a data directory has the files of the embedded engine.
func StoreDir(dataDir string) string { return filepath.Join(dataDir, storeName) }

// RestoringName is the directory in a data directory where a restore makes the store,
// before it gets its place.
const RestoringName = "store.restoring"

// KubeconfigFile is where a data directory has its administrator's kubeconfig.
func KubeconfigFile(dataDir string) string { return filepath.Join(dataDir, kubeconfigName) }
