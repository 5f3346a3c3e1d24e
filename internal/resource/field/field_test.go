package field

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestPathsAreThoseOfAPIMachinery builds the same random paths in both packages. Every path is compared after all have
// been made, because they share memory.
func TestPathsAreThoseOfAPIMachinery(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	own, want := []*Path{NewPath("spec"), nil}, []*field.Path{field.NewPath("spec"), nil}
	for i := range 2000 {
		from := random.IntN(len(own))
		name := strconv.Itoa(i)
		switch random.IntN(4) {
		case 0:
			own, want = append(own, own[from].Index(i)), append(want, want[from].Index(i))
		case 1:
			own, want = append(own, own[from].Key(name)), append(want, want[from].Key(name))
		case 2:
			own, want = append(own, own[from].Child(name)), append(want, want[from].Child(name))
		case 3:
			own = append(own, own[from].Child(name, "a", "b"))
			want = append(want, want[from].Child(name, "a", "b"))
		}
	}
	for i := range own {
		if own[i].String() != want[i].String() || own[i].K8s().String() != want[i].String() {
			t.Errorf("%s and %s, want %s", own[i], own[i].K8s(), want[i])
		}
	}
}

func TestErrorsAreThoseOfAPIMachinery(t *testing.T) {
	own, other := NewPath("a").Child("b"), field.NewPath("a").Child("b")
	for _, pair := range [][2]*Error{
		{Duplicate(own, 1), field.Duplicate(other, 1)},
		{Forbidden(own, "x"), field.Forbidden(other, "x")},
		{InternalError(own, errors.New("x")), field.InternalError(other, errors.New("x"))},
		{Invalid(own, 1, "x"), field.Invalid(other, 1, "x")},
		{NotFound(own, 1), field.NotFound(other, 1)},
		{NotSupported(own, "x", []string{"y"}), field.NotSupported(other, "x", []string{"y"})},
		{Required(own, "x"), field.Required(other, "x")},
		{TooLong(own, "xx", 1), field.TooLong(other, "xx", 1)},
		{TooMany(own, 2, 1), field.TooMany(other, 2, 1)},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%#v, want %#v", pair[0], pair[1])
		}
	}
}

// TestPathsAreAllocatedTogether counts the allocations of a thousand paths.
func TestPathsAreAllocatedTogether(t *testing.T) {
	allocations := testing.AllocsPerRun(10, func() {
		p := NewPath("spec")
		for i := range 500 {
			p.Index(i).Child("name")
		}
	})
	if allocations > 20 {
		t.Errorf("%v allocations", allocations)
	}
}

// TestFreePathsAreUsedAgain counts the allocations of a thousand paths whose memory is given back, and checks that they
// are those of a fresh path.
func TestFreePathsAreUsedAgain(t *testing.T) {
	const most = 10 // the runtime takes some from the pool, with -race a quarter
	allocations := testing.AllocsPerRun(100, func() {
		p := NewPath("spec")
		defer p.Free()
		var last *Path
		for i := range 500 {
			last = p.Index(i).Child("name")
		}
		if last.parent.parent != p || last.kind != named || last.parent.index != 499 {
			t.Error("a path is wrong")
		}
	})
	if allocations > most {
		t.Errorf("%v allocations, want at most %d", allocations, most)
	}
	p := NewPath("a", "b", "c", "d")
	p.Key("k").Index(7).Child("e").Free()
	if got := NewPath("x", "y", "z", "u").Child("v").Index(1).String(); got != "x.y.z.u.v[1]" {
		t.Errorf("got %s", got)
	}
}
