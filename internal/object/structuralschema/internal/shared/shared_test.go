package shared

import (
	"errors"
	"runtime"
	"sync"
	"testing"
)

type value struct{ text string }

func TestOneValueForAKey(t *testing.T) {
	var m Map[string, value]
	var made sync.Map
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			v, err := m.Get("a", func() (*value, error) { return &value{"a"}, nil })
			if err != nil {
				t.Error(err)
			}
			made.Store(v, true)
		})
	}
	group.Wait()
	n := 0
	made.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d values for one key", n)
	}
	wrong := errors.New("wrong")
	if _, err := m.Get("b", func() (*value, error) { return nil, wrong }); err != wrong {
		t.Errorf("err = %v", err)
	}
	if m.Len() != 1 {
		t.Errorf("%d keys", m.Len())
	}
}

func TestUnusedValuesAreForgotten(t *testing.T) {
	var m Map[int, value]
	kept := m.Add(-1, &value{"kept"})
	for i := range 100 {
		m.Add(i, &value{"gone"})
	}
	for range 1000 { // cleanups run some time after a collection
		if runtime.GC(); m.Len() == 1 {
			break
		}
		runtime.Gosched()
	}
	if m.Len() != 1 {
		t.Errorf("%d values are kept, 1 is used", m.Len())
	}
	if other := m.Add(-1, &value{"other"}); other != kept {
		t.Error("a value in use was forgotten")
	}
	if again := m.Add(5, &value{"new"}); again.text != "new" {
		t.Errorf("got %q", again.text)
	}
	runtime.KeepAlive(kept)
}
