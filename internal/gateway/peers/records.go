package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// recordPrefix is where servers store their addresses, as kube-apiserver does. No resource of the API is there, so
	// no client can change a record.
	recordPrefix = "/registry/peerserverleases/"
	// identityLabel is a label of a record with the name of the server.
	identityLabel = "apiserverIdentity"
	// recordInterval is the time between two writes of a record. A record that is not written for recordSeconds is
	// removed by the store.
	recordInterval = 10 * time.Second
	recordSeconds  = 15
)

// recordHead is the envelope of a stored record.
var recordHead = wire.NewEnvelopeHead("v1", "Endpoints")

// Address returns the address ("host:port") in the record of a server. It is an error if there is no record.
func Address(ctx context.Context, store storage.Store, server string) (string, error) {
	entry, _, err := store.Get(ctx, recordPrefix+server, 0)
	if err != nil {
		return "", err
	}
	if entry.ModRevision == 0 {
		return "", fmt.Errorf("the server %s has no record of its address: it has stopped, or does not want requests", server)
	}
	e, err := decodeRecord(entry.Value)
	if err != nil {
		return "", fmt.Errorf("the record of server %s: %w", server, err)
	}
	address := addressIn(e)
	if address == "" {
		return "", fmt.Errorf("the record of server %s has no address", server)
	}
	return address, nil
}

func decodeRecord(value []byte) (*corev1.Endpoints, error) {
	raw, err := wire.Raw(value)
	if err != nil {
		return nil, err
	}
	e := &corev1.Endpoints{}
	return e, e.Unmarshal(raw)
}

// A Record keeps the address of this server in the store, for its peers.
type Record struct {
	Store storage.Store
	// Server is the name of this server; see bootstrap.ServerName.
	Server string
	// Host and Port are where peers reach this server.
	Host string
	Port int
	// Accepts returns which credentials this server accepts, for the comparison of servers in package server. It may be nil.
	Accepts func() Accepts
	// Written, unless nil, is called after each write of the record.
	Written func(ctx context.Context)
	Log     *slog.Logger

	mu       sync.Mutex // guards what follows, and is held during writes
	revision int64      // of the last write
	left     bool       // Leave was called
}

// Run writes the record until ctx ends. The store removes it 15 seconds later.
func (r *Record) Run(ctx context.Context) {
	ticker := time.NewTicker(recordInterval)
	defer ticker.Stop()
	for {
		if err := r.write(ctx); err != nil {
			if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
				return
			}
			r.Log.Warn("cannot write the address at which peers reach this server; will try again", "error", err)
		} else if r.Written != nil {
			r.Written(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// write writes the record with an incremented generation, which restarts its lifetime.
func (r *Record) write(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := recordPrefix + r.Server
	for !r.left {
		entry, _, err := r.Store.Get(ctx, key, 0)
		if err != nil {
			return err
		}
		value, err := r.encode(entry.Value)
		if err != nil {
			return err
		}
		revision, err := r.Store.Commit(ctx, storage.Txn{
			Conditions: []storage.Condition{{Key: key, ModRevision: entry.ModRevision}},
			Ops:        []storage.Op{{Key: key, Value: value, TTL: recordSeconds}},
		})
		if err == nil {
			r.revision = revision
			return nil
		}
		if !isConflict(err) {
			return err
		}
	}
	return nil
}

// encode returns the record that replaces the stored one in before, which may be nil. If before cannot be read, it
// begins anew.
func (r *Record) encode(before []byte) ([]byte, error) {
	e := &corev1.Endpoints{}
	if before != nil {
		if stored, err := decodeRecord(before); err == nil {
			e = stored
		}
	}
	e.Generation++
	metav1.SetMetaDataLabel(&e.ObjectMeta, identityLabel, r.Server)
	if e.Annotations = nil; r.Accepts != nil {
		e.Annotations = r.Accepts().annotations()
	}
	e.Subsets = []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: r.Host}},
		Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(r.Port), Protocol: corev1.ProtocolTCP}}, //nolint:gosec // a port
	}}
	return scheme.EncodeEnvelope(recordHead, e)
}

// Leave removes the record permanently. A record that another process has written since is kept: a server that replaces
// this one on the same machine has the same name.
func (r *Record) Leave(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return nil
	}
	r.left = true
	if r.revision == 0 {
		return nil
	}
	key := recordPrefix + r.Server
	_, err := r.Store.Commit(ctx, storage.Txn{
		Conditions: []storage.Condition{{Key: key, ModRevision: r.revision}}, Ops: []storage.Op{storage.Delete(key)},
	})
	if isConflict(err) {
		return nil
	}
	return err
}

func isConflict(err error) bool { return errors.As(err, new(*storage.ConflictError)) }
