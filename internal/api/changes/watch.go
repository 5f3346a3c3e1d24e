package changes

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// watch sends the changes after a revision or a time, and then new changes until the watch ends. A slow client
// does not delay others: its watch reads the next changes from the history.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	timeout := h.o.MinWatchTimeout + rand.N(max(h.o.MinWatchTimeout, 1))
	if text := r.URL.Query().Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return kerrors.NewBadRequest("invalid timeoutSeconds " + strconv.Quote(text))
		}
		if seconds > 0 {
			timeout = time.Duration(seconds) * time.Second
		}
	}
	account := fairshare.Account{}
	if u := request.UserFrom(r.Context()); u != nil {
		account = h.watches.AccountFor(u)
	}
	if !account.Take(1) {
		return kerrors.NewTooManyRequests("too many watches of changes; please try again later", 1)
	}
	defer account.Release()
	f, err := h.open(r, info)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	s := &stream{w: w, flusher: http.NewResponseController(w), table: wantsTable(r)}
	info.Tracker.Serve(nil)
	w.Header().Set("Content-Type", apiresponse.JSON)
	w.WriteHeader(http.StatusOK)
	_ = s.flusher.Flush()
	err = f.follow(ctx, s)
	if err == nil || ctx.Err() != nil || errors.Is(err, errGone) || errors.Is(err, storage.ErrClosed) {
		return nil
	}
	_ = s.send("ERROR", apierr.Status(err)) // the client may be gone
	return nil
}

// follow sends the changes after f.after until ctx ends.
func (f *feed) follow(ctx context.Context, s *stream) error {
	for {
		for more := true; more; {
			f.budget = budget{maxExamined, maxDecoded, watchBytes}
			part, err := f.work(ctx, func() (part []history.ObjectChange, err error) {
				part, more, err = f.next(ctx, f.limit)
				return part, err
			})
			if err == nil {
				err = s.changes(part)
			}
			if err != nil {
				return err
			}
		}
		err := f.live(ctx, s)
		if compacted := (*storage.CompactedError)(nil); !errors.As(err, &compacted) {
			return err
		}
	}
}

// live sends the changes that the store publishes. It fails with *storage.CompactedError if the client is so slow that it has to go on
// from the history.
func (f *feed) live(ctx context.Context, s *stream) error {
	watcher, err := f.h.o.Store.Watch(ctx, registry.Root, f.after+1)
	if err != nil {
		return err
	}
	defer watcher.Close()
	request.ResponseFrom(ctx).InitialEventsSent() // a watch that waits for changes takes no seat
	resources := f.h.o.Resources.Watch()
	defer resources.Close()
	for {
		batch, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		if resources.Pending() {
			resources.Take()
			f.resources = f.h.index()
		}
		for events := range slices.Chunk(batch.Events, defaultLimit) {
			list, err := f.work(ctx, func() (list []history.ObjectChange, err error) {
				for i := range events {
					if list, err = f.appendChange(ctx, list, &storage.Change{Event: events[i]}); err != nil {
						return nil, err
					}
				}
				return list, nil
			})
			if err == nil {
				err = s.changes(list)
			}
			if err != nil {
				return err
			}
		}
		f.after = batch.Revision
	}
}

// work calls decode while at most maxWorking watches do so at a time. It keeps its place for as long again as
// decode took, without working. So the watches take only a part of the processors from requests, however many
// changes there are.
func (f *feed) work(
	ctx context.Context, decode func() ([]history.ObjectChange, error),
) (list []history.ObjectChange, err error) {
	select {
	case f.h.working <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-f.h.working }()
	began := time.Now()
	if list, err = decode(); err == nil && ctx.Err() == nil {
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
		}
	}
	return list, err
}

// errGone ends a watch whose client went away.
var errGone = errors.New("the client is gone")

// stream writes the events of a watch.
type stream struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	table   bool
}

func (s *stream) changes(list []history.ObjectChange) error {
	for i := range list {
		object := any(&list[i])
		if s.table {
			object = tableOf(metav1.ListMeta{ResourceVersion: list[i].ResourceVersion}, list[i:i+1])
		}
		if err := s.send("ADDED", object); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) send(kind string, object any) error {
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Object any    `json:"object"`
	}{kind, object})
	if err != nil {
		return err
	}
	if _, err := s.w.Write(append(body, '\n')); err != nil {
		return errGone
	}
	if err := s.flusher.Flush(); err != nil {
		return errGone
	}
	return nil
}
