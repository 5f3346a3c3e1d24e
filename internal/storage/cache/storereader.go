package cache

import (
	"context"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// reader is the part of a store that a view uses.
type reader interface {
	Get(ctx context.Context, key string, revision int64) (storage.Entry, int64, error)
	Range(ctx context.Context, r storage.RangeRequest) (storage.RangeResult, error)
}

// storeReader reads the entries of one resource from the store, or from another reader, and records each read in
// the metrics of the resource. Its fields are set when the resource is created, and its methods may be called
// concurrently.
type storeReader struct {
	config *Config
	store  storage.Store
}

// get reads a whole key at a revision; 0 is the latest.
func (s *storeReader) get(ctx context.Context, from reader, key string, revision int64) (storage.Entry, int64, error) {
	start := time.Now()
	e, at, err := from.Get(ctx, key, revision)
	s.config.Metrics.Request(GetOperation, start, err)
	return e, at, err
}

// check returns the error that reads of from at this revision return, such as a *storage.CompactedError. It reads
// the prefix of the resource as if it were a key, because no object has this key.
func (s *storeReader) check(ctx context.Context, from reader, revision int64) error {
	_, _, err := s.get(ctx, from, s.config.Prefix, revision)
	return err
}

// getRange reads a range.
func (s *storeReader) getRange(
	ctx context.Context, from reader, request storage.RangeRequest,
) (storage.RangeResult, error) {
	operation := ListOperation
	if request.CountOnly {
		operation = CountOperation
	}
	start := time.Now()
	result, err := from.Range(ctx, request)
	s.config.Metrics.Request(operation, start, err)
	return result, err
}

// count counts the entries of the store below a prefix of the resource, or only the first ones if limit is not 0.
// revision 0 is the latest.
func (s *storeReader) count(ctx context.Context, prefix string, revision int64, limit int) (int64, error) {
	start := s.config.Prefix + prefix
	result, err := s.getRange(ctx, s.store, storage.RangeRequest{
		Start: start, End: storage.PrefixEnd(start), Revision: revision, CountOnly: true, Uncounted: limit > 0, Limit: limit,
	})
	return result.Count, err
}

// A page of the store has at most this number of entries. Its size is about pageBytes at most.
const (
	firstPage = 500
	maxPage   = 1000
	pageBytes = 1 << 20
	// readBytes is the size at which a page ends, if the store can end pages by bytes. It is small enough that the
	// entries are still in the processor's cache when they are encoded.
	readBytes = 512 << 10
)

// pages reads the entries with a prefix at one revision, page by page. If the store cannot limit the bytes of a
// page, the number of entries is limited. The limit depends on their average size in the previous page.
type pages struct {
	request storage.RangeRequest
	wanted  int // entries that are still wanted; all if not positive
	done    bool
}

// newPages starts at the key from, or at the first key with the prefix if that is higher. Revision 0 means the
// latest revision when the first page is read. wanted is the number of wanted entries; if it is not positive, all
// entries are wanted.
func newPages(prefix, from string, revision int64, wanted int) *pages {
	p := &pages{wanted: wanted, request: storage.RangeRequest{
		Start: max(prefix, from), End: storage.PrefixEnd(prefix), Revision: revision, Bytes: readBytes, Uncounted: true,
	}}
	p.setLimit(firstPage)
	return p
}

// setLimit bounds the entries of the next page by limit and by the number of wanted entries.
func (p *pages) setLimit(limit int) {
	p.request.Limit = limit
	if p.wanted > 0 {
		p.request.Limit = min(limit, p.wanted)
	}
}

// next returns the next page of a resource, read from the store or its past. It may have more entries than wanted.
func (p *pages) next(ctx context.Context, s *storeReader, from reader) ([]storage.Entry, error) {
	page, err := s.getRange(ctx, from, p.request)
	if err != nil {
		return nil, err
	}
	p.request.Revision = page.Revision
	n := len(page.Entries)
	if !page.More || n == 0 {
		p.done = true
		return page.Entries, nil
	}
	p.request.Start = page.Entries[n-1].Key + "\x00"
	bytes := 0
	for i := range page.Entries {
		bytes += len(page.Entries[i].Value)
	}
	if p.wanted > 0 {
		// A caller that reads on after the wanted number looks for objects that match a selector.
		p.wanted = max(p.wanted-n, firstPage)
	}
	p.setLimit(min(max(pageBytes/(bytes/n+1), 1), maxPage))
	return page.Entries, nil
}

// scan reads the entries of the resource at one revision (0 means the latest), page by page. It calls each with
// every entry, until each returns false. It returns the revision, and whether it reached the end.
func (s *storeReader) scan(ctx context.Context, revision int64, each func(storage.Entry) bool) (bool, int64, error) {
	p := newPages(s.config.Prefix, "", revision, 0)
	for !p.done {
		entries, err := p.next(ctx, s, s.store)
		if err != nil {
			return false, 0, err
		}
		for i := range entries {
			if !each(entries[i]) {
				return false, p.request.Revision, nil
			}
		}
	}
	return true, p.request.Revision, nil
}
