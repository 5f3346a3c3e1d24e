package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

// resetRecord is the content of a file that exists from a reset on until the server is started without the request for one, so that a
// server which is started again with the same flags does not leave the servers that have joined since.
type resetRecord struct {
	Time     time.Time
	Revision int64 // the first one after the reset
	// Settled: clients that have a revision before Revision are told that it is gone.
	Settled bool
}

func (c *Cluster) resetFile() string { return filepath.Join(c.dir, "reset.json") }

// readReset returns the record of a reset, nil if there is none.
func (c *Cluster) readReset() (*resetRecord, error) {
	text, err := os.ReadFile(c.resetFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	r := &resetRecord{}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	return r, err
}

func (c *Cluster) writeReset(r *resetRecord) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return certs.WriteFile(c.resetFile(), text, datadir.PrivateFile)
}

// reset makes this server the only member of a new cluster, if Members.Reset asks for it and that has not been done. One that was
// interrupted before Settle is done again, because its record may be older than its effect. o are the options of the member.
func (c *Cluster) reset(ctx context.Context, o member.Options) error {
	if err := member.FinishReset(c.dir); err != nil {
		return err
	}
	r, err := c.readReset()
	switch {
	case err != nil:
		return err
	case !c.Config.Storage.Members.Reset && r != nil && r.Settled:
		return os.Remove(c.resetFile())
	case !c.Config.Storage.Members.Reset:
		return nil
	case r != nil && r.Settled:
		c.Log.Warn("--cluster-reset has no effect, because this server has been reset; start it without that flag", "reset", r.Time)
		return nil
	}
	for _, i := range member.Known(c.dir, o) {
		if i.PeerURL != o.PeerURL && c.runs(ctx, i.PeerURL) {
			return config.Errorf("the member %s runs at %s: stop all other members before {Storage.Members.Reset}. If a majority of them is left, "+
				"there is no need for it; otherwise they join again, with new directories, when this server runs", i.Name, i.PeerURL)
		}
	}
	c.Log.Warn("this server becomes the only member of a new cluster: what it has not received from the others is lost, and they must not be "+
		"started again with their data", "directory", c.dir)
	err = member.Reset(ctx, o, func(revision int64) error {
		return c.writeReset(&resetRecord{Time: time.Now().Truncate(time.Second), Revision: revision})
	})
	if err == nil {
		c.Log.Warn("the server was reset; start it without --cluster-reset from now on. Remove what it had before when all is well",
			"before", filepath.Join(c.dir, member.Before))
	}
	return err
}

// runs reports whether a member answers, whatever it says.
func (c *Cluster) runs(ctx context.Context, peer string) bool {
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	err := call(ctx, c.client, http.MethodPost, peer+statusPath, "", struct{}{}, &memberStatus{})
	return !errors.As(err, new(*url.Error))
}

const (
	// settledKey is written after a reset.
	settledKey = "/keelson.dev/reset"
	// settleTime is how long the past of this server may take to have all that was written before a reset.
	settleTime = 10 * time.Minute
)

// Settle ends a reset. Clients that have seen a revision before it, which others may have assigned to something else, are told that it is
// gone, and read all again. await waits for a moment until the past of this server has all changes: what is gone cannot be added to it
// later.
func (c *Cluster) Settle(ctx context.Context, store storage.Store, await func(context.Context) error) error {
	r, err := c.readReset()
	if err != nil || r == nil || r.Settled {
		return err
	}
	now, err := store.Revision(ctx)
	if err != nil {
		return err
	}
	if now >= r.Revision { // otherwise the reset was interrupted before it had an effect
		// With a change behind the gap, the past is known to go on after it.
		for _, op := range []storage.Op{storage.Put(settledKey, []byte("{}")), storage.Delete(settledKey)} {
			if _, err := store.Commit(ctx, storage.Txn{Ops: []storage.Op{op}}); err != nil {
				return err
			}
		}
		limited, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		for err = await(limited); err != nil && limited.Err() == nil; err = await(limited) {
			c.Log.Warn("the past of this server does not have all yet that was written before the reset; the start waits for it", "error", err)
		}
		if err != nil {
			c.Log.Error("the past of this server does not have all that was written before the reset, and begins now", "error", err)
		}
		if err := store.Compact(ctx, r.Revision); err != nil {
			return fmt.Errorf("cannot end the reset: %w", err)
		}
	}
	r.Settled = true
	return c.writeReset(r)
}
