// Package apitypes compares the API types that this repository declares itself with those of k8s.io/api. These tests are
// not beside the types: `go mod tidy` in a module that uses Keelson also reads the tests of the packages that it imports,
// and fails if they import a package that a newer k8s.io/api does not have.
package apitypes

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	generated "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/scheduling/v1alpha2"
)

// object is what the types here and those of k8s.io/api have in common.
type object interface {
	Marshal() ([]byte, error)
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
	Size() int
}

// TestEncodingsOfKubernetes compares the encodings of random objects with those of k8s.io/api 0.36.
func TestEncodingsOfKubernetes(t *testing.T) {
	for seed := range uint64(500) {
		for _, pair := range [][2]object{{&v1alpha2.Workload{}, &generated.Workload{}}, {&v1alpha2.PodGroup{}, &generated.PodGroup{}}} {
			own, theirs := pair[0], pair[1]
			fill(rand.New(rand.NewPCG(seed, 0)), reflect.ValueOf(own).Elem())
			document, err := json.Marshal(own)
			if err != nil {
				t.Fatal(err)
			}
			// Through protobuf, because JSON does not tell nil and empty lists apart.
			message, err := own.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if err := theirs.Unmarshal(message); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got, err := theirs.Marshal(); err != nil || !bytes.Equal(got, message) {
				t.Fatalf("seed %d, %T: %x, want %x (%v)", seed, own, message, got, err)
			}
			if got, err := json.Marshal(theirs); err != nil || string(got) != string(document) {
				t.Fatalf("seed %d, %T: %s, want %s (%v)", seed, own, document, got, err)
			}
			back := reflect.New(reflect.TypeOf(own).Elem()).Interface().(object)
			if err := back.Unmarshal(message); err != nil || !equality.Semantic.DeepEqual(back, own) {
				t.Fatalf("seed %d: %+v %v, want %+v", seed, back, err, own)
			}
			buffer := make([]byte, own.Size()+3)
			if n, err := own.MarshalToSizedBuffer(buffer); err != nil || !bytes.Equal(buffer[3:], message) || n != len(message) {
				t.Fatalf("seed %d: %d bytes %x, %v", seed, n, buffer, err)
			}
		}
	}
}

// TestUnmarshalOfAnything decodes broken messages: the types here and those of k8s.io/api agree whether they are valid.
func TestUnmarshalOfAnything(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var group v1alpha2.PodGroup
		fill(r, reflect.ValueOf(&group).Elem())
		message, err := group.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for range r.IntN(4) {
			message[r.IntN(len(message))] = byte(r.IntN(256))
		}
		message = message[:r.IntN(len(message)+1)]
		var own v1alpha2.PodGroup
		var theirs generated.PodGroup
		ownErr, theirErr := own.Unmarshal(message), theirs.Unmarshal(message)
		if (ownErr == nil) != (theirErr == nil) {
			t.Errorf("seed %d: %x: %v, k8s.io/api %v", seed, message, ownErr, theirErr)
			continue
		}
		if ownErr != nil {
			continue
		}
		a, _ := own.Marshal()
		b, _ := theirs.Marshal()
		if !bytes.Equal(a, b) {
			t.Errorf("seed %d: %x is\n%x, k8s.io/api\n%x", seed, message, a, b)
		}
	}
}

// TestDeepCopies changes every value of an object; its copy stays.
func TestDeepCopies(t *testing.T) {
	for seed := range uint64(100) {
		var group v1alpha2.PodGroup
		fill(rand.New(rand.NewPCG(seed, 2)), reflect.ValueOf(&group).Elem())
		before, _ := json.Marshal(&group)
		c := group.DeepCopy()
		overwrite(reflect.ValueOf(&group).Elem())
		if after, _ := json.Marshal(c); string(after) != string(before) {
			t.Fatalf("seed %d: %s, want %s", seed, after, before)
		}
		var w v1alpha2.Workload
		fill(rand.New(rand.NewPCG(seed, 3)), reflect.ValueOf(&w).Elem())
		before, _ = json.Marshal(&w)
		copied := w.DeepCopy()
		overwrite(reflect.ValueOf(&w).Elem())
		if after, _ := json.Marshal(copied); string(after) != string(before) {
			t.Fatalf("seed %d: %s, want %s", seed, after, before)
		}
	}
}

// fill sets random values. Metadata gets a name and labels.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Interface().(type) {
	case metav1.TypeMeta, metav1.Time:
		return
	case metav1.ObjectMeta:
		v.Set(reflect.ValueOf(metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"", "a", "Pod", "längeres"}[r.IntN(4)])
	case reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 1 << 30}[r.IntN(4)])
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Slice:
		if n := r.IntN(3); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	}
}

// overwrite changes every string and number in place.
func overwrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 7)
	case reflect.Pointer:
		if !v.IsNil() {
			overwrite(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			overwrite(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf("x"))
		}
	case reflect.Struct:
		if _, ok := v.Interface().(metav1.Time); ok {
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				overwrite(v.Field(i))
			}
		}
	}
}
