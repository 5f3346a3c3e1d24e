// Package snapshots writes the whole state of a store: at an interval to a directory, and to a client that asks for it.
package snapshots

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// Path is the path at which a POST returns the whole state of the store, in the format of
// internal/storage/snapshot. The state contains all Secrets, so common roles must not allow this request. Roles
// for monitoring and reading often allow GET of many paths, and roles for profiling often allow all methods below
// /debug.
const Path = "/keelson/snapshot"

// stallTime limits each write to the client, because the store must keep old files while a snapshot is read.
const stallTime = time.Minute

// Exporter is a store whose state can be exported while it is used.
type Exporter interface {
	Export(ctx context.Context) (*embedded.Export, error)
}

// Handler serves Path.
type Handler struct {
	store Exporter // nil if the store cannot export its state
	log   *slog.Logger
}

// NewHandler returns a Handler. If the store is not an Exporter, it answers 501.
func NewHandler(store storage.Store, log *slog.Logger) *Handler {
	e, _ := store.(Exporter)
	return &Handler{e, log}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		apiresponse.Error(w, r, apierr.PathMethodNotAllowed())
		return
	case h.store == nil:
		apiresponse.Error(w, r, apierr.New(http.StatusNotImplemented, "NotImplemented", "this server's data is in etcd: "+
			"use `etcdctl snapshot save`"))
		return
	}
	// Damage is checked first, because after the first byte of the snapshot no error can be sent.
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
		Created: created, Program: version.Program(), Past: r.URL.Query().Get("history") == "true",
	})
	if err = errors.Join(err, e.Close()); err != nil {
		h.log.Warn("a snapshot was not sent to its end", "error", err)
		panic(http.ErrAbortHandler) // the client must not mistake it for a complete snapshot
	}
}

// deadlineWriter sets a deadline for each write.
type deadlineWriter struct {
	http.ResponseWriter
	connection *http.ResponseController
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	err := w.connection.SetWriteDeadline(time.Now().Add(stallTime))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}
