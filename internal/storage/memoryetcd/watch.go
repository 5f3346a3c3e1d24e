package memoryetcd

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// allWatches is the watch ID of a response that concerns all watches of a stream.
const allWatches = -1

// watches is the service of watches.
type watches struct {
	pb.UnimplementedWatchServer
	*Server
}

// watch is one watch of a stream.
type watch struct {
	span   span
	next   int64 // the first revision whose events have not been sent
	prevKV bool
	// progress is true if the client wants to get the current revision while there are no events. quiet is true if
	// nothing was sent since the last tick.
	progress, quiet bool
	filters         []pb.WatchCreateRequest_FilterType
}

// keep reports whether the filters of the client let an event pass.
func (w *watch) keep(e *mvccpb.Event) bool {
	for _, f := range w.filters {
		if f == pb.WatchCreateRequest_NOPUT && e.Type == mvccpb.PUT ||
			f == pb.WatchCreateRequest_NODELETE && e.Type == mvccpb.DELETE {
			return false
		}
	}
	return true
}

// events returns the events in the form that the client has requested: with or without previous values.
func (w *watch) events(list []*mvccpb.Event) []*mvccpb.Event {
	if w.prevKV {
		return list
	}
	out := make([]*mvccpb.Event, len(list))
	for i, e := range list {
		out[i] = &mvccpb.Event{Type: e.Type, Kv: e.Kv}
	}
	return out
}

// stream is a stream of watches. Only the goroutine of the handler uses it.
type stream struct {
	server  *Server
	send    func(*pb.WatchResponse) error
	watches map[int64]*watch
	lastID  int64
	// progressAsked is true if the client has requested progress and was not answered yet.
	progressAsked bool
}

// Watch implements pb.WatchServer.
func (w *watches) Watch(client pb.Watch_WatchServer) error {
	server := w.Server
	st := &stream{server: server, send: client.Send, watches: map[int64]*watch{}, lastID: -1}
	requests, failed := receive(client.Context(), server, client.Recv)
	ticker := time.NewTicker(server.ProgressInterval)
	defer ticker.Stop()
	for {
		changed, behind, err := st.sendEvents()
		if err != nil {
			return err
		}
		if behind { // there are more events to send, but requests are handled first
			select {
			case r := <-requests:
				if err := st.handle(r); err != nil {
					return err
				}
			default:
			}
			continue
		}
		select {
		case <-client.Context().Done():
			return client.Context().Err()
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case r := <-requests:
			err = st.handle(r)
		case <-changed:
		case <-ticker.C:
			err = st.tick()
		}
		if err != nil {
			return err
		}
	}
}

// receive passes the requests of a stream to a channel until the context of the stream ends.
func receive(ctx context.Context, s *Server, recv func() (*pb.WatchRequest, error)) (<-chan *pb.WatchRequest, <-chan error) {
	requests, failed := make(chan *pb.WatchRequest), make(chan error, 1)
	s.tasks.Go(func() {
		for {
			r, err := recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	return requests, failed
}

// handle carries out a request of the client.
func (st *stream) handle(r *pb.WatchRequest) error {
	switch request := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		return st.create(request.CreateRequest)
	case *pb.WatchRequest_CancelRequest:
		id := request.CancelRequest.WatchId
		if st.watches[id] == nil {
			return nil
		}
		delete(st.watches, id)
		return st.send(&pb.WatchResponse{Header: st.server.header(), WatchId: id, Canceled: true})
	case *pb.WatchRequest_ProgressRequest:
		st.progressAsked = true
	}
	return nil
}

// create begins a watch.
func (st *stream) create(r *pb.WatchCreateRequest) error {
	w := &watch{
		span: newSpan(r.Key, r.RangeEnd), next: r.StartRevision, prevKV: r.PrevKv, progress: r.ProgressNotify,
		quiet: true, filters: r.Filters,
	}
	if len(r.Key) == 0 {
		w.span.start = "\x00" // the first possible key
	}
	head := st.server.header()
	refuse := func(reason string) error {
		return st.send(&pb.WatchResponse{
			Header: head, WatchId: allWatches, Created: true, Canceled: true, CancelReason: reason,
		})
	}
	if w.span.isEmpty() {
		return refuse("mvcc: watcher range is empty")
	}
	id := r.WatchId
	if id == 0 {
		for id = st.lastID + 1; st.watches[id] != nil; id++ {
		}
		st.lastID = id
	} else if st.watches[id] != nil {
		return refuse("mvcc: duplicate watch ID provided on the WatchStream")
	}
	if w.next <= 0 {
		w.next = head.Revision + 1
	}
	st.watches[id] = w
	return st.send(&pb.WatchResponse{Header: head, WatchId: id, Created: true})
}

// sendEvents sends one response to each watch that has events. It returns a channel that is closed when there may
// be more events. behind is true if there are more events already. If not, sendEvents also answers a request for
// progress.
func (st *stream) sendEvents() (changed <-chan struct{}, behind bool, err error) {
	var out []*pb.WatchResponse
	var revision int64
	_ = st.server.read(func(s *state) error {
		changed, revision = st.server.changed, s.revision
		for _, id := range slices.Sorted(maps.Keys(st.watches)) {
			w := st.watches[id]
			if w.next > s.revision {
				continue
			}
			if w.next < s.compacted {
				delete(st.watches, id)
				out = append(out, &pb.WatchResponse{
					Header: header(s.revision), WatchId: id, Canceled: true, CompactRevision: s.compacted,
					CancelReason: rpctypes.ErrCompacted.Error(),
				})
				continue
			}
			events, upTo := s.events(w.span, max(w.next, s.logStart), w.keep)
			w.next = upTo + 1
			behind = behind || upTo < s.revision
			if len(events) > 0 {
				w.quiet = false
				out = append(out, &pb.WatchResponse{Header: header(upTo), WatchId: id, Events: w.events(events)})
			}
		}
		return nil
	})
	for _, r := range out {
		if err := st.send(r); err != nil {
			return nil, false, err
		}
	}
	if st.progressAsked && !behind {
		st.progressAsked = false
		err = st.send(&pb.WatchResponse{Header: header(revision), WatchId: allWatches})
	}
	return changed, behind, err
}

// tick sends the current revision to the watches that have requested progress notifications and got nothing since
// the last tick.
func (st *stream) tick() error {
	current := st.server.header().Revision
	for _, id := range slices.Sorted(maps.Keys(st.watches)) {
		w := st.watches[id]
		// All events before revision w.next have been sent. A watch may begin in the future.
		if w.progress && w.quiet {
			if err := st.send(&pb.WatchResponse{Header: header(min(w.next-1, current)), WatchId: id}); err != nil {
				return err
			}
		}
		w.quiet = true
	}
	return nil
}
