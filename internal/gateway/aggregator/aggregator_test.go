package aggregator

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestPart checks that only the paths of the version are taken from the OpenAPI v2 document of a server.
func TestPart(t *testing.T) {
	r := &remote{version: schema.GroupVersion{Group: "example.com", Version: "v1"}}
	got, _, err := r.part([]byte(`{"swagger":"2.0","paths":{"/apis/example.com/v1/a":{"get":{"responses":{"200":
		{"description":"OK","schema":{"$ref":"#/definitions/A"}}}}},"/apis/example.com/v1beta1/a":{},
		"/apis/example.com/":{},"/version/":{}},"definitions":{"A":{"type":"object"},"B":{"type":"object"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"paths":{"/apis/example.com/v1/a":{"get":{"responses":{"200":{"description":"OK","schema":` +
		`{"$ref":"#/definitions/A"}}}}}},"definitions":{"A":{"type":"object"}}}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, _, err := r.part([]byte(`[]`)); err == nil {
		t.Error("a list is no error")
	}
}

func TestChangesWakeThoseWhoWait(t *testing.T) {
	var c changes
	first, second := c.next(), c.next()
	c.add()
	for i, changed := range []<-chan struct{}{first, second} {
		select {
		case <-changed:
		default:
			t.Errorf("channel %d is open after a change", i)
		}
	}
	select {
	case <-c.next():
		t.Error("the channel of the next change is closed before it")
	default:
	}
	if n := c.count.Load(); n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
}
