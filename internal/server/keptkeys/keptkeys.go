// Package keptkeys finds the kept versions of objects that need a key which a reload of the encryption
// configuration has removed. Current objects are often rewritten with the new key, but their old versions cannot
// be.
package keptkeys

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/storage/encrypt"
)

// Check looks at the kept versions of all resources after a reload.
type Check struct {
	waiting chan encrypt.Dropped // has the last reload that was not looked at
}

// New returns a Check. The caller must call Run.
func New() *Check { return &Check{make(chan encrypt.Dropped, 1)} }

// Reloaded tells Run to check a reload, and does not wait for that. If an earlier reload was not checked yet, Run
// checks the keys that either of them has dropped.
func (c *Check) Reloaded(dropped encrypt.Dropped) {
	select {
	case earlier := <-c.waiting:
		later := dropped
		dropped = func(gr schema.GroupResource) []string { return append(earlier(gr), later(gr)...) }
	default:
	}
	c.waiting <- dropped
}

// Run looks at reloads until ctx ends. It logs an error for each resource with versions that need a key which is gone.
func (c *Check) Run(ctx context.Context, resources *directory.Directory, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case dropped := <-c.waiting:
			c.check(ctx, resources, dropped, log)
		}
	}
}

// check looks at all resources.
func (c *Check) check(ctx context.Context, resources *directory.Directory, dropped encrypt.Dropped, log *slog.Logger) {
	seen := map[schema.GroupResource]bool{}
	for _, gv := range resources.GroupVersions() {
		for _, r := range resources.Resources(gv) {
			gr := r.GVR.GroupResource()
			prefixes := dropped(gr)
			if seen[gr] || len(prefixes) == 0 {
				continue
			}
			seen[gr] = true
			versions, last, err := countKept(ctx, r, prefixes)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				log.Error("it is not known whether kept versions need the keys that the encryption configuration does not have any more",
					"resource", gr.String(), "error", err)
			case versions > 0:
				log.Error("kept versions of objects need keys that the encryption configuration does not have any more: "+
					"they cannot be read until the keys are back", "resource", gr.String(), "keys", keyNames(prefixes),
					"versions", versions, "lastRevision", last)
			}
		}
	}
}

// countKept counts the kept versions of a resource whose values begin with one of prefixes. last is the newest
// revision.
func countKept(ctx context.Context, r *directory.Resource, prefixes []string) (versions int, last int64, err error) {
	if r.Open == nil || r.Announced {
		return 0, 0, nil
	}
	served, done, err := r.Open(ctx)
	switch {
	case kerrors.IsNotFound(err):
		return 0, 0, nil // the resource was just removed
	case err != nil:
		return 0, 0, err
	}
	defer done()
	if served.Resource.Virtual() {
		return 0, 0, nil
	}
	err = served.Resource.Past.EachKept(ctx, func(value []byte, revision int64) bool {
		if encrypt.Holds(prefixes, value) {
			versions, last = versions+1, max(last, revision)
		}
		return true
	})
	return versions, last, err
}

// keyNames returns the providers and names of keys: "aesgcm:v1:key1", or "none" for values that are not encrypted.
func keyNames(prefixes []string) string {
	var names []string
	for _, prefix := range prefixes {
		name := strings.TrimSuffix(strings.TrimPrefix(prefix, "k8s:enc:"), ":")
		if name == "" {
			name = "none"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
