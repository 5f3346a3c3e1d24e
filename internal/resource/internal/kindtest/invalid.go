package kindtest

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// rejectedCreate is a recorded create that kube-apiserver rejected, with the causes in order.
// Causes about metadata are left out, because the generic validation finds them.
type rejectedCreate struct {
	Name, Resource, Version string
	Body                    json.RawMessage
	Causes                  []string
}

// Invalid checks that strategies reject the creates of invalid.jsonl.gz for the recorded
// reasons.
func Invalid(t *testing.T, kinds []*registry.Kind) {
	for c := range read[rejectedCreate](t, "invalid.jsonl.gz", "") {
		kind := find(t, kinds, c.Resource)
		obj, err := decode(kind, c.Version, c.Body)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		checkCauses(t, c.Name, kind.Strategy.ValidateCreate(fill(kind, obj, admin()), obj, nil), c.Causes)
	}
}

// checkCauses checks that errors have the recorded causes. How often each is there does not matter, because a response has
// it once.
func checkCauses(t *testing.T, name string, errs field.ErrorList, causes []string) {
	var got, want []string
	for _, err := range errs {
		if !strings.HasPrefix(err.Field, "metadata.") {
			got = append(got, normal(err.Field+": "+err.ErrorBody()).(string))
		}
	}
	for _, cause := range causes {
		want = append(want, normal(cause).(string))
	}
	slices.Sort(got)
	slices.Sort(want)
	got, want = slices.Compact(got), slices.Compact(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: refused for\n  %s\nwant\n  %s", name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func admin() *request.User { return &request.User{Name: "admin", Groups: []string{"system:masters"}} }

// fill sets the fields that the generic pipeline sets before it validates a new object.
// A strategy sees the status of a new object only if it asks for it (StatusOnCreate); otherwise the status is
// cleared first.
func fill(kind *registry.Kind, obj registry.Object, user *request.User) context.Context {
	obj.SetUID(someUID)
	obj.SetCreationTimestamp(metav1.Now())
	if f := kind.Strategy.Status; f != nil && !kind.Strategy.StatusOnCreate {
		reflect.ValueOf(f(obj)).Elem().SetZero()
	}
	if kind.Strategy.Generation != nil {
		obj.SetGeneration(1)
	}
	ctx := request.WithUser(context.Background(), user)
	if f := kind.Strategy.PrepareCreate; f != nil {
		f(ctx, obj)
	}
	return ctx
}
