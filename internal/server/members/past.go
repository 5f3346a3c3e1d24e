package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

// Exporter has the data of the cluster with its past, on the disk of this server.
type Exporter interface {
	Export(ctx context.Context) (*embedded.Export, error)
}

const (
	// pastWait is for how long a new member asks the others for the past, while none of them has one or can be reached.
	pastWait = 10 * time.Second
	// pastTime limits the transfer of the past.
	pastTime = time.Hour
)

// SetPast makes the past of this server available to other members. c may be nil.
func (c *Cluster) SetPast(e Exporter) {
	if c != nil {
		c.past.Store(&e)
	}
}

// sendPast answers with the data and its past, as a snapshot.
func (c *Cluster) sendPast(w http.ResponseWriter, r *http.Request) {
	p := c.past.Load()
	if p == nil {
		apiresponse.Error(w, r, unavailable("this member keeps no past (--local-state)"))
		return
	}
	// The context of the request ends soon, because nothing is read from the connection meanwhile (member.Options.listen). A write to a
	// client that reads nothing fails after the same time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pastTime)
	defer cancel()
	e, err := (*p).Export(ctx)
	if err != nil {
		apiresponse.Error(w, r, unavailable("this member has no past to send: %v", err))
		return
	}
	_, err = backup.Save(ctx, w, e, backup.SaveOptions{Created: time.Now(), Program: version.Program(), Past: true})
	if err = errors.Join(err, e.Close()); err != nil {
		c.Log.Warn("the past of the data was not sent to another member to its end", "error", err)
		panic(http.ErrAbortHandler) // the other member must not take it for complete
	}
}

// FetchPast returns the data and the past of another member, as a snapshot. It returns nil if no other one has one, after it has asked for
// pastWait.
func (c *Cluster) FetchPast(ctx context.Context) (io.ReadCloser, error) {
	m := c.member.Load()
	for began := time.Now(); ; {
		list, err := m.List(ctx)
		if err != nil {
			return nil, err
		}
		others := 0
		var errs []error
		for _, i := range list {
			if i.ID == m.ID() || i.Learner {
				continue
			}
			others++
			body, err := c.askPast(ctx, i)
			if err == nil {
				return body, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", i.Name, err))
		}
		switch {
		case others == 0:
			return nil, nil
		case time.Since(began) > pastWait:
			c.Log.Warn("no other member has the past of the data, so that of this one begins now", "error", errors.Join(errs...))
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(joinPause):
		}
	}
}

// askPast asks a member for the past. The caller closes the body.
func (c *Cluster) askPast(ctx context.Context, i member.Info) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.PeerURL+pastPath, bytes.NewReader(nil))
	if err != nil {
		return nil, err
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRequest)) // what there is of it
		return nil, errors.Join(fmt.Errorf("it answers %s: %s", resp.Status, text), resp.Body.Close())
	}
	return resp.Body, nil
}
