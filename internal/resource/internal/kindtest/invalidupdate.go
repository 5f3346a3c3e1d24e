package kindtest

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// rejectedUpdate is a recorded update that kube-apiserver rejected, with the causes in order, and the creation of the
// object before it. Causes about metadata are left out, because the generic validation finds them.
type rejectedUpdate struct {
	Name, Resource, Version string
	Status                  bool // an update of the status subresource
	Old, Body               json.RawMessage
	Causes                  []string
}

// InvalidUpdates checks that strategies reject the updates of invalidupdate.jsonl.gz for the recorded reasons.
func InvalidUpdates(t *testing.T, kinds []*registry.Kind) {
	for c := range read[rejectedUpdate](t, "invalidupdate.jsonl.gz", "") {
		kind := find(t, kinds, c.Resource)
		old, err := create(kind, created{Version: c.Version, Body: c.Old})
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		prepare, validate := update, kind.Strategy.ValidateUpdate
		if c.Status {
			prepare, validate = updateStatus, kind.Strategy.ValidateStatusUpdate
		}
		sent, err := decode(kind, c.Version, c.Body)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		obj := prepare(kind, sent, old)
		var errs field.ErrorList
		if validate != nil {
			errs = validate(context.Background(), obj, old)
		}
		checkCauses(t, c.Name, errs, c.Causes)
	}
}

// updateStatus does what the generic pipeline does with an update of the status before validation, and returns the
// object that it validates.
func updateStatus(kind *registry.Kind, sent, old registry.Object) registry.Object {
	obj := old.DeepCopyObject().(registry.Object)
	status := kind.Strategy.Status
	reflect.ValueOf(status(obj)).Elem().Set(reflect.ValueOf(status(sent)).Elem())
	if f := kind.Strategy.PrepareStatusUpdate; f != nil {
		f(obj, old)
	}
	return obj
}
