package registry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// randomMeta returns metadata with a random number of owners and finalizers.
func randomMeta(r *rand.Rand) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name: "a", Namespace: "b", UID: types.UID(fmt.Sprint(r.Int())), Labels: map[string]string{"a": "b"},
	}
	flag := func() *bool {
		if r.IntN(3) == 0 {
			return nil
		}
		return new(r.IntN(2) == 0)
	}
	for i := range r.IntN(4) {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
			APIVersion: "example.com/v1", Kind: "Thing", Name: fmt.Sprint("thing-", i),
			UID: types.UID(fmt.Sprint(r.Int())), Controller: flag(), BlockOwnerDeletion: flag(),
		})
	}
	for i := range r.IntN(3) {
		m.Finalizers = append(m.Finalizers, fmt.Sprint("example.com/", i))
	}
	if r.IntN(2) == 0 {
		m.DeletionTimestamp = new(metav1.NewTime(time.Unix(r.Int64N(1e9), 0)))
	}
	return m
}

// TestLifecycleIsThatOfTheObject compares the result of reading encoded bytes with the metadata of the object.
func TestLifecycleIsThatOfTheObject(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		object := &corev1.ConfigMap{ObjectMeta: randomMeta(r), Data: map[string]string{"k": "v"}}
		want := Lifecycle{
			UID: object.UID, Deleting: object.DeletionTimestamp != nil,
			Finalizers: object.Finalizers, Owners: object.OwnerReferences,
		}
		message, err := object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := protoLifecycle(message); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("protobuf: got %+v, %v, want %+v", got, err, want)
		}
		text, err := json.Marshal(object.ObjectMeta)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := jsonLifecycle(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("JSON: got %+v, %v, want %+v", got, err, want)
		}
	}
}
