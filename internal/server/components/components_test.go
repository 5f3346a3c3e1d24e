package components

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/storage"
)

// revisions is a store that implements only Revision.
type revisions struct {
	storage.Store
	err error
}

func (r revisions) Revision(context.Context) (int64, error) { return 1, r.err }

func TestStatusOfTheStore(t *testing.T) {
	for _, c := range []struct {
		err    error
		status corev1.ConditionStatus
		text   string
	}{
		{nil, corev1.ConditionTrue, "ok"}, {errors.New("cause"), corev1.ConditionFalse, "cause"},
	} {
		objs, err := New(revisions{err: c.err}, 2).Statuses(t.Context(), "etcd-1")
		if err != nil || len(objs) != 1 {
			t.Fatalf("%d objects, %v", len(objs), err)
		}
		o := objs[0].(*corev1.ComponentStatus)
		if o.Name != "etcd-1" || o.Conditions[0].Status != c.status || o.Conditions[0].Message != c.text {
			t.Errorf("%+v, want %s %q", o, c.status, c.text)
		}
	}
	if objs, err := New(revisions{}, 0).Statuses(t.Context(), "other"); err != nil || len(objs) != 0 {
		t.Errorf("an unknown name: %v, %v", objs, err)
	}
}
