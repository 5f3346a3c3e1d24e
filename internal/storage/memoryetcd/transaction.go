package memoryetcd

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// writer makes the changes of one request. They all have the revision after the current one.
type writer struct {
	*state
	events []*mvccpb.Event
}

// write calls do. All changes of do get one revision. Without changes there is no new revision. do must check the
// request before its first change, because changes cannot be undone.
func (s *state) write(do func(*writer) error) error {
	w := &writer{state: s}
	err := do(w)
	if len(w.events) > 0 {
		s.revision++
		s.log = append(s.log, w.events)
	}
	return err
}

// current returns the revision at which the reads of the request are made. It includes the changes that the
// request has made so far.
func (w *writer) current() int64 {
	if len(w.events) > 0 {
		return w.revision + 1
	}
	return w.revision
}

// set stores a version of a key and logs the change. A nil kv deletes the key.
func (w *writer) set(h *versions, kv *mvccpb.KeyValue) {
	revision := w.revision + 1
	before := h.at(revision)
	v := version{revision, kv}
	h.versions = append(h.versions, v)
	w.bytes += v.size(h.key)
	event := &mvccpb.Event{Type: mvccpb.PUT, Kv: kv, PrevKv: before}
	if kv == nil {
		event.Type, event.Kv = mvccpb.DELETE, &mvccpb.KeyValue{Key: []byte(h.key), ModRevision: revision}
	}
	var from, to int64
	if before != nil {
		from = before.Lease
	}
	if kv != nil {
		to = kv.Lease
	}
	w.leases.move(h.key, from, to)
	w.events = append(w.events, event)
}

// checkPut returns an error if a put request is invalid. It is called before any change is made.
func (s *state) checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) > 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	case r.Lease != 0 && s.leases.byID[r.Lease] == nil:
		return rpctypes.ErrGRPCLeaseNotFound
	}
	if r.IgnoreValue || r.IgnoreLease {
		if h := s.keys.get(string(r.Key)); h == nil || h.at(s.revision) == nil {
			return rpctypes.ErrGRPCKeyNotFound
		}
	}
	return nil
}

func (w *writer) put(r *pb.PutRequest) *pb.PutResponse {
	h := w.keys.getOrAdd(string(r.Key))
	before := h.at(w.revision + 1)
	kv := &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, Lease: r.Lease, ModRevision: w.revision + 1, CreateRevision: w.revision + 1, Version: 1,
	}
	if before != nil {
		kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
		if r.IgnoreValue {
			kv.Value = before.Value
		}
		if r.IgnoreLease {
			kv.Lease = before.Lease
		}
	}
	w.set(h, kv)
	out := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: w.current()}}
	if r.PrevKv {
		out.PrevKv = before
	}
	return out
}

func (w *writer) deleteRange(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	out := &pb.DeleteRangeResponse{}
	w.keys.ascend(newSpan(r.Key, r.RangeEnd), func(h *versions) bool {
		if before := h.at(w.revision + 1); before != nil {
			w.set(h, nil)
			out.Deleted++
			if r.PrevKv {
				out.PrevKvs = append(out.PrevKvs, before)
			}
		}
		return true
	})
	out.Header = &pb.ResponseHeader{Revision: w.current()}
	return out
}

func (s *state) checkRange(r *pb.RangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if pb.RangeRequest_SortOrder_name[int32(r.SortOrder)] == "" ||
		pb.RangeRequest_SortTarget_name[int32(r.SortTarget)] == "" {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return s.checkRevision(r.Revision)
}

// readRange answers a range request. A request without a revision reads at the revision current.
func (s *state) readRange(r *pb.RangeRequest, current int64) *pb.RangeResponse {
	revision := r.Revision
	if revision <= 0 {
		revision = current
	}
	out := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: current}}
	// If the request has no order, etcd applies the limit first and sorts only the remaining keys.
	selective := r.SortOrder != pb.RangeRequest_NONE || r.MinModRevision|r.MaxModRevision|r.MinCreateRevision|r.MaxCreateRevision != 0
	var found []*mvccpb.KeyValue
	s.keys.ascend(newSpan(r.Key, r.RangeEnd), func(h *versions) bool {
		kv := h.at(revision)
		if kv == nil {
			return true
		}
		out.Count++
		if !r.CountOnly && isSelected(r, kv) && (selective || r.Limit <= 0 || int64(len(found)) <= r.Limit) {
			found = append(found, kv)
		}
		return true
	})
	sortRange(r, found)
	if r.Limit > 0 && int64(len(found)) > r.Limit {
		found, out.More = found[:r.Limit], true
	}
	if r.KeysOnly {
		for i, kv := range found {
			found[i] = &mvccpb.KeyValue{
				Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
			}
		}
	}
	out.Kvs = found
	return out
}

// isSelected reports whether the revisions of a key are within the bounds of a request.
func isSelected(r *pb.RangeRequest, kv *mvccpb.KeyValue) bool {
	in := func(n, least, most int64) bool { return (least == 0 || n >= least) && (most == 0 || n <= most) }
	return in(kv.ModRevision, r.MinModRevision, r.MaxModRevision) &&
		in(kv.CreateRevision, r.MinCreateRevision, r.MaxCreateRevision)
}

// isSorted reports whether a request requires another order than the order of keys.
func isSorted(r *pb.RangeRequest) bool {
	return r.SortOrder == pb.RangeRequest_DESCEND || r.SortTarget != pb.RangeRequest_KEY
}

func sortRange(r *pb.RangeRequest, list []*mvccpb.KeyValue) {
	if !isSorted(r) {
		return
	}
	sign := 1
	if r.SortOrder == pb.RangeRequest_DESCEND {
		sign = -1
	}
	slices.SortStableFunc(list, func(a, b *mvccpb.KeyValue) int {
		switch r.SortTarget {
		case pb.RangeRequest_VERSION:
			return sign * cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			return sign * cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			return sign * cmp.Compare(a.ModRevision, b.ModRevision)
		case pb.RangeRequest_VALUE:
			return sign * bytes.Compare(a.Value, b.Value)
		}
		return sign * bytes.Compare(a.Key, b.Key)
	})
}

// decide evaluates the comparisons of a transaction, and of the transactions that are nested in its chosen branch.
// It appends one result for each transaction, in the order in which branch needs them.
func (s *state) decide(r *pb.TxnRequest, results []bool) ([]bool, []*pb.RequestOp) {
	holds := !slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool { return !s.holds(c) })
	branch := r.Failure
	if holds {
		branch = r.Success
	}
	results = append(results, holds)
	var all []*pb.RequestOp
	for _, op := range branch {
		if nested := op.GetRequestTxn(); nested != nil {
			var inner []*pb.RequestOp
			results, inner = s.decide(nested, results)
			all = append(all, inner...)
			continue
		}
		all = append(all, op)
	}
	return results, all
}

// holds evaluates a comparison. A comparison of a range must hold for each key in it. If the range has no key, all
// numbers count as 0.
func (s *state) holds(c *pb.Compare) bool {
	found, ok := false, true
	s.keys.ascend(newSpan(c.Key, c.RangeEnd), func(h *versions) bool {
		if kv := h.at(s.revision); kv != nil {
			found = true
			ok = compares(c, kv)
		}
		return ok
	})
	if found {
		return ok
	}
	if c.Target == pb.Compare_VALUE {
		return false // if there is no key, a comparison of values never holds
	}
	return compares(c, &mvccpb.KeyValue{})
}

func compares(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var result int
	switch c.Target {
	case pb.Compare_VALUE:
		result = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		result = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		result = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		result = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		result = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return result == 0
	case pb.Compare_NOT_EQUAL:
		return result != 0
	case pb.Compare_GREATER:
		return result > 0
	case pb.Compare_LESS:
		return result < 0
	}
	return true
}

// transact answers a transaction.
func (w *writer) transact(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	results, taken := w.decide(r, nil)
	for _, op := range taken {
		var err error
		switch {
		case op.GetRequestPut() != nil:
			err = w.checkPut(op.GetRequestPut())
		case op.GetRequestRange() != nil:
			err = w.checkRange(op.GetRequestRange())
		}
		if err != nil {
			return nil, err
		}
	}
	out, _ := w.branch(r, results)
	out.Header = header(w.current())
	return out, nil
}

// branch runs the branch of a transaction that the first of the results chooses, and returns the remaining
// results.
func (w *writer) branch(r *pb.TxnRequest, results []bool) (*pb.TxnResponse, []bool) {
	out := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: results[0]}
	ops := r.Failure
	if results[0] {
		ops = r.Success
	}
	results = results[1:]
	for _, op := range ops {
		one := &pb.ResponseOp{}
		switch request := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			one.Response = &pb.ResponseOp_ResponseRange{ResponseRange: w.readRange(request.RequestRange, w.current())}
		case *pb.RequestOp_RequestPut:
			one.Response = &pb.ResponseOp_ResponsePut{ResponsePut: w.put(request.RequestPut)}
		case *pb.RequestOp_RequestDeleteRange:
			one.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: w.deleteRange(request.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			var nested *pb.TxnResponse
			nested, results = w.branch(request.RequestTxn, results)
			one.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: nested}
		}
		out.Responses = append(out.Responses, one)
	}
	return out, results
}

// maxNesting is the limit of nested transactions. (etcd has no limit; the time to encode the response grows with the
// square of the depth.)
const maxNesting = 1000

// checkTransaction returns an error if a transaction is invalid for any content of the store: it has too many
// operations, an operation without a key, or a branch that changes a key twice.
func checkTransaction(r *pb.TxnRequest, maxOps int) error {
	_, _, err := changesOf(r, maxOps, maxNesting)
	return err
}

// changes are the keys that a branch of a transaction changes.
type changes struct {
	puts    map[string]bool
	deletes []span
}

// put adds a key that the branch puts. It fails if another operation of the branch changes the key. Keys in
// allowed may have been put before.
func (c *changes) put(key string, allowed map[string]bool) error {
	deleted := func(s span) bool {
		return s.end != noEnd && s.contains(key) // etcd allows a put together with a deletion without an end
	}
	if c.puts[key] && !allowed[key] || slices.ContainsFunc(c.deletes, deleted) {
		return rpctypes.ErrGRPCDuplicateKey
	}
	c.puts[key] = true
	return nil
}

// changesOf checks a transaction and returns the changes of its branches. Transactions may be nested up to the
// given depth.
func changesOf(r *pb.TxnRequest, maxOps, depth int) (then, otherwise changes, err error) {
	if depth == 0 {
		return then, otherwise, rpctypes.ErrGRPCTooManyOps
	}
	if len(r.Compare) > maxOps || len(r.Success) > maxOps || len(r.Failure) > maxOps {
		return then, otherwise, rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return then, otherwise, rpctypes.ErrGRPCEmptyKey
		}
	}
	if then, err = branchChanges(r.Success, maxOps, depth); err == nil {
		otherwise, err = branchChanges(r.Failure, maxOps, depth)
	}
	return then, otherwise, err
}

// branchChanges checks the operations of a branch and returns its changes. As in etcd, the deletions of nested
// transactions are compared only with the puts that this function handles after them: the puts of later nested transactions,
// and the puts of the branch itself.
func branchChanges(ops []*pb.RequestOp, maxOps, depth int) (changes, error) {
	out := changes{puts: map[string]bool{}}
	for _, op := range ops {
		if len(keyOf(op)) == 0 && op.GetRequestTxn() == nil {
			return out, rpctypes.ErrGRPCEmptyKey
		}
		if d := op.GetRequestDeleteRange(); d != nil {
			out.deletes = append(out.deletes, newSpan(d.Key, d.RangeEnd))
		}
	}
	for _, op := range ops {
		nested := op.GetRequestTxn()
		if nested == nil {
			continue
		}
		then, otherwise, err := changesOf(nested, maxOps, depth-1)
		if err != nil {
			return out, err
		}
		if err := errors.Join(out.putAll(then.puts, nil), out.putAll(otherwise.puts, then.puts)); err != nil {
			return out, rpctypes.ErrGRPCDuplicateKey
		}
		out.deletes = slices.Concat(out.deletes, then.deletes, otherwise.deletes)
	}
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			if err := out.put(string(p.Key), nil); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// putAll calls put for each of keys. The keys in allowed may be put already: the other branch of the same nested
// transaction puts them, and only one of the two branches is executed.
func (c *changes) putAll(keys, allowed map[string]bool) error {
	for key := range keys {
		if err := c.put(key, allowed); err != nil {
			return err
		}
	}
	return nil
}

// keyOf returns the key of an operation; nil for a transaction.
func keyOf(op *pb.RequestOp) []byte {
	switch {
	case op.GetRequestPut() != nil:
		return op.GetRequestPut().Key
	case op.GetRequestRange() != nil:
		return op.GetRequestRange().Key
	case op.GetRequestDeleteRange() != nil:
		return op.GetRequestDeleteRange().Key
	}
	return nil
}
