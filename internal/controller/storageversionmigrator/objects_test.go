package storageversionmigrator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// fakeAPI has objects with the revisions listed at the time of the list.
type fakeAPI struct {
	listed []int64
	// now has the revisions of objects at the time of the write, by name, if they differ from listed; 0 means that
	// the object was deleted.
	now map[string]int64
	// errs are the errors of writes, by the names of the objects.
	errs map[string]error

	mu      sync.Mutex // guards written
	written []string
}

func (f *fakeAPI) ListMetadata(_ context.Context, _ client.ListRequest, yield func(client.Metadata) bool) (int64, error) {
	for i, revision := range f.listed {
		if !yield(client.Metadata{Namespace: "ns", Name: fmt.Sprintf("o%d", i), Revision: revision}) {
			break
		}
	}
	return 100, f.errs["list"]
}

func (f *fakeAPI) Update(_ context.Context, r client.UpdateRequest) (registry.Object, error) {
	i, _ := strconv.Atoi(strings.TrimPrefix(r.Name, "o"))
	revision, changed := f.now[r.Name]
	if !changed {
		revision = f.listed[i]
	}
	if revision == 0 {
		return nil, kerrors.NewNotFound(r.Resource.GroupResource(), r.Name)
	}
	o := &corev1.ConfigMap{}
	o.ResourceVersion = strconv.FormatInt(revision, 10)
	if err := r.Change(o); err != nil {
		return nil, err
	}
	if err := f.errs[r.Name]; err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = append(f.written, r.Name)
	return o, nil
}

func TestRewriteAll(t *testing.T) {
	gr := configMaps.GroupResource()
	busy, refused := kerrors.NewTooManyRequests("busy", 1), kerrors.NewForbidden(gr, "o1", errors.New("no"))
	for name, c := range map[string]struct {
		api       *fakeAPI
		written   int
		text      string
		transient bool
	}{
		"none": {api: &fakeAPI{}, text: "The migration is running"},
		"all":  {api: &fakeAPI{listed: []int64{1, 2, 3}}, written: 3, text: "The migration is running, 3 objects verified migrated"},
		"later ones are left alone": {
			api: &fakeAPI{listed: []int64{1, 11, 10}}, written: 2, text: "The migration is running, 3 objects verified migrated",
		},
		"deleted and changed meanwhile": {
			api:     &fakeAPI{listed: []int64{1, 2, 3}, now: map[string]int64{"o0": 0, "o1": 7}},
			written: 1, text: "The migration is running, 3 objects verified migrated",
		},
		"conflict": {
			api:     &fakeAPI{listed: []int64{1, 2}, errs: map[string]error{"o0": kerrors.NewConflict(gr, "o0", nil)}},
			written: 1, text: "The migration is running, 2 objects verified migrated",
		},
		"busy": {
			api:  &fakeAPI{listed: []int64{1}, errs: map[string]error{"o0": busy}},
			text: "The migration is running, 1/1 objects not yet migrated", transient: true,
		},
		"refused": {
			api: &fakeAPI{listed: []int64{11, 5}, errs: map[string]error{"o1": refused}}, text: "The migration is running, 1/2 objects not yet migrated",
		},
		"the store fails": {
			api: &fakeAPI{errs: map[string]error{"list": errors.New("disk")}}, text: "The migration is running", transient: true,
		},
	} {
		r := rewriteAll(t.Context(), c.api, configMaps, 10)
		if len(c.api.written) != c.written || r.text() != c.text || (r.err != nil && transient(r.err)) != c.transient {
			t.Errorf("%s: %v %q %+v", name, c.api.written, r.text(), r)
		}
	}
}

// TestStopsAtTheFirstError: after an error, the objects whose rewrite has not begun are counted but not written.
func TestStopsAtTheFirstError(t *testing.T) {
	const number = 1000
	api := &fakeAPI{listed: make([]int64, number), errs: map[string]error{"o0": kerrors.NewInternalError(errors.New("no"))}}
	for i := range api.listed {
		api.listed[i] = 1
	}
	r := rewriteAll(t.Context(), api, configMaps, 10)
	if r.err == nil || r.total != number || r.left+len(api.written) != number || r.left == 0 {
		t.Errorf("%+v, %d written", r, len(api.written))
	}
}

// TestNext: one migration of a resource runs at a time, the oldest first.
func TestNext(t *testing.T) {
	at := func(name string, seconds int64, conditions ...migrationv1.MigrationConditionType) *migration {
		m := &migration{}
		m.Name, m.CreationTimestamp = name, metav1.NewTime(time.Unix(seconds, 0))
		for _, c := range conditions {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: string(c), Status: metav1.ConditionTrue})
		}
		return m
	}
	const isRunning, succeeded, hasFailed = migrationv1.MigrationRunning, migrationv1.MigrationSucceeded, migrationv1.MigrationFailed
	for want, all := range map[string][]*migration{
		"":        {at("a", 1, succeeded), at("b", 1, isRunning, hasFailed)},
		"oldest":  {at("a", 2), at("oldest", 1)},
		"byname":  {at("c", 1), at("byname", 1), at("a", 1, succeeded)},
		"running": {at("a", 1), at("running", 2, isRunning)},
	} {
		got := ""
		if m := next(all); m != nil {
			got = m.Name
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
