package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// readsASecond is the number of GET requests in a second.
const readsASecond = 50

// get reads random objects.
func (r *run) get(ctx context.Context) {
	c := newClient(r.server.url)
	defer c.end()
	rng := rand.New(rand.NewPCG(r.o.seed, 1<<32))
	ticker := time.NewTicker(time.Second / readsASecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		k := r.kinds[rng.IntN(len(r.kinds))]
		slot := rng.IntN(k.slots)
		mu := r.lock(slot)
		path := k.path + "/" + k.object(slot)
		mu.Unlock()
		began := time.Now()
		_, err := c.send(ctx, http.MethodGet, path, "", nil)
		var status *statusError
		if errors.As(err, &status) && status.code == http.StatusNotFound {
			continue // it was replaced in the meantime
		}
		r.read(ctx, &r.figures.gets, began, err)
	}
}

// read records how long a read took, or that it failed.
func (r *run) read(ctx context.Context, d *durations, began time.Time, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.figures.failed(err)
	default:
		d.add(time.Since(began))
	}
}

// listMeta is the part of a list that the reader uses.
type listMeta struct {
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        int
	}
	Items []json.RawMessage
}

// page reads whole collections page by page, with a pause between two pages: a continue token must work until the end
// of the list while objects change.
func (r *run) page(ctx context.Context) {
	c := newClient(r.server.url)
	defer c.end()
	const limit, pause = "100", 500 * time.Millisecond
	for i := 0; ctx.Err() == nil; i++ {
		k := r.kinds[i%len(r.kinds)]
		query := url.Values{"limit": {limit}}
		for ctx.Err() == nil {
			began := time.Now()
			answer, err := c.send(ctx, http.MethodGet, k.path+"?"+query.Encode(), "", nil)
			r.read(ctx, &r.figures.pages, began, err)
			var list listMeta
			if err == nil {
				err = json.Unmarshal(answer, &list)
			}
			if err != nil || list.Metadata.Continue == "" {
				break
			}
			query.Set("continue", list.Metadata.Continue)
			sleep(ctx, pause)
		}
		sleep(ctx, pause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// comeAndGo starts a new client every half second, which connects, lists, watches for some seconds, and disconnects.
func (r *run) comeAndGo(ctx context.Context) {
	rng := rand.New(rand.NewPCG(r.o.seed, 1<<33))
	for ctx.Err() == nil {
		k, stay := r.kinds[rng.IntN(len(r.kinds))], time.Duration(rng.IntN(5000))*time.Millisecond
		go r.visit(ctx, k, stay) // ends with ctx at the latest
		sleep(ctx, time.Second/2)
	}
}

func (r *run) visit(ctx context.Context, k *kind, stay time.Duration) {
	c := newClient(r.server.url)
	defer c.end()
	answer, err := c.send(ctx, http.MethodGet, k.path+"?limit=500", "", nil)
	var list listMeta
	if err == nil {
		err = json.Unmarshal(answer, &list)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.figures.failed(err)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stay)
	defer cancel()
	r.follow(ctx, c, k, list.Metadata.ResourceVersion)
}

// count returns the number of existing objects of all kinds.
func (r *run) count(ctx context.Context, c *client) (int, error) {
	sum := 0
	for _, k := range r.kinds {
		answer, err := c.send(ctx, http.MethodGet, k.path+"?limit=1", "", nil)
		if err != nil {
			return 0, err
		}
		var list listMeta
		if err := json.Unmarshal(answer, &list); err != nil {
			return 0, err
		}
		sum += len(list.Items) + list.Metadata.RemainingItemCount
	}
	return sum, nil
}

// watch watches a kind in the same way as an informer: when the watch ends, it continues at the last revision, and
// lists again if that revision is too old.
func (r *run) watch(ctx context.Context, k *kind) {
	c := newClient(r.server.url)
	defer c.end()
	for revision := ""; ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		if revision == "" {
			answer, err := c.send(ctx, http.MethodGet, k.path+"?limit=1", "", nil)
			var list listMeta
			if err == nil {
				err = json.Unmarshal(answer, &list)
			}
			if err != nil {
				if ctx.Err() == nil {
					r.figures.failed(err)
				}
				continue
			}
			revision = list.Metadata.ResourceVersion
		}
		revision = r.follow(ctx, c, k, revision)
	}
}

// follow watches from a revision until ctx or the server ends the watch. It returns the revision at which to continue,
// or "" if a new list is needed.
func (r *run) follow(ctx context.Context, c *client, k *kind, revision string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.open(ctx, http.MethodGet, k.path+"?watch=1&allowWatchBookmarks=true&resourceVersion="+revision, "", nil)
	if err != nil {
		if ctx.Err() == nil {
			r.figures.failed(err)
		}
		return revision
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		r.figures.failed(&statusError{request: "watch " + k.name, code: resp.StatusCode})
		return ""
	}
	decoder := json.NewDecoder(resp.Body)
	for {
		var event struct {
			Type   string
			Object struct {
				Code     int
				Message  string
				Metadata struct {
					ResourceVersion   string
					DeletionTimestamp string
					Annotations       map[string]string
				}
			}
		}
		if err := decoder.Decode(&event); err != nil {
			return revision // the server or ctx has ended the watch
		}
		switch event.Type {
		case "ERROR":
			r.figures.failed(&statusError{request: "watch " + k.name, code: event.Object.Code, body: event.Object.Message})
			return ""
		case "ADDED", "MODIFIED":
			// A deletion, and a write that only sets the deletionTimestamp, has the annotation of the write before it.
			sent, err := strconv.ParseInt(event.Object.Metadata.Annotations[timeAnnotation], 10, 64)
			if err == nil && event.Object.Metadata.DeletionTimestamp == "" {
				r.figures.lags.add(time.Since(time.Unix(0, sent)))
			}
		}
		revision = event.Object.Metadata.ResourceVersion
	}
}
