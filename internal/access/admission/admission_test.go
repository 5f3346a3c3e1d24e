package admission

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

func TestChainRunsInOrderUntilAnError(t *testing.T) {
	var ran []string
	refused := errors.New("refused")
	note := func(name string, err error) func(context.Context, *Attributes) error {
		return func(context.Context, *Attributes) error {
			ran = append(ran, name)
			return err
		}
	}
	c := NewChain(
		nil,
		Plugin{Name: "a", Mutate: note("mutate a", nil), Validate: note("validate a", nil)},
		Plugin{Name: "b", Validate: note("validate b", refused)},
		Plugin{Name: "c", Mutate: note("mutate c", nil), Validate: note("validate c", nil)},
	)
	if err := c.Mutate(t.Context(), &Attributes{}); err != nil {
		t.Error(err)
	}
	if err := c.Validate(t.Context(), &Attributes{}); !errors.Is(err, refused) {
		t.Errorf("Validate: %v", err)
	}
	if want := []string{"mutate a", "mutate c", "validate a", "validate b"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	var none *Chain
	if none.Mutate(t.Context(), &Attributes{}) != nil || none.Validate(t.Context(), &Attributes{}) != nil {
		t.Error("a nil chain refuses")
	}
}

func TestAttributes(t *testing.T) {
	pods := corev1.Resource("pods")
	a := Attributes{Resource: pods, Operation: Update}
	if !a.Is(pods, Create, Update) || a.Is(pods, Create) || a.Is(corev1.Resource("nodes"), Update) {
		t.Error("Is mistakes resource or operation")
	}
	if a.Subresource = "status"; a.Is(pods, Update) {
		t.Error("Is takes a subresource for the resource")
	}
	generated := &corev1.Pod{}
	generated.GenerateName = "p-"
	a.Object = generated
	if got, want := a.Forbidden(errors.New("no")).Error(), `pods "p-" is forbidden: no`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNewest(t *testing.T) {
	at := func(name string, seconds int64) registry.Object {
		o := &corev1.ConfigMap{}
		o.Name, o.CreationTimestamp = name, metav1.NewTime(time.Unix(seconds, 0))
		return o
	}
	objs := []registry.Object{at("b", 2), at("d", 5), at("c", 3), at("a", 3)}
	not := func(name string) func(registry.Object) bool {
		return func(o registry.Object) bool { return o.GetName() != name }
	}
	if got := Newest(objs, not("d")); got.GetName() != "a" {
		t.Errorf("got %s, want a", got.GetName())
	}
	if got := Newest(objs, not("")); got.GetName() != "d" {
		t.Errorf("got %s, want d", got.GetName())
	}
	if got := Newest(nil, not("")); got != nil {
		t.Errorf("got %v of nothing", got)
	}
}
