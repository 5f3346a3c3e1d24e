package lifecycle

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/kindtest"
)

func TestKinds(t *testing.T) {
	if kinds := Kinds(features.Gates{}); kinds != nil {
		t.Errorf("%d kinds without the gate", len(kinds))
	}
	kindtest.Run(t, Kinds(features.All()), kindtest.Options{})
}

// recordedAt is when the updates in testdata/status.jsonl.gz were sent to kube-apiserver. The file has the statuses of an
// eviction before and after each of them, and the causes for which it was refused.
const recordedAt = "2026-11-27T05:56:59Z"

func TestEvictionStatus(t *testing.T) {
	now, err := time.Parse(time.RFC3339, recordedAt)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("testdata/status.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for lines := json.NewDecoder(text); ; {
		var c struct {
			Name      string
			Old, Body lifecyclev1alpha1.EvictionStatus
			Causes    []string
		}
		if err := lines.Decode(&c); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, err := range validateEvictionStatus(&c.Body, &c.Old, now) {
			got = append(got, err.Field+": "+err.ErrorBody())
		}
		if !slices.Equal(got, c.Causes) {
			t.Errorf("%s: refused for\n  %q\nwant\n  %q", c.Name, got, c.Causes)
		}
	}
}

// TestSilentResponder checks that an active responder may only be interrupted when it was silent for the deadline.
func TestSilentResponder(t *testing.T) {
	start := metav1.Unix(1_800_000_000, 0)
	target := func(state lifecyclev1alpha1.ResponderStateType) []lifecyclev1alpha1.TargetResponder {
		return []lifecyclev1alpha1.TargetResponder{{Name: "a.io/b", Priority: ptr.To[int32](5000), State: state}}
	}
	reports := []lifecyclev1alpha1.ResponderStatus{{Name: "a.io/b", StartTime: &start}}
	old := &lifecyclev1alpha1.EvictionStatus{
		TargetResponders: target(lifecyclev1alpha1.ResponderStateActive), Responders: reports,
	}
	s := &lifecyclev1alpha1.EvictionStatus{
		TargetResponders: target(lifecyclev1alpha1.ResponderStateInterrupted), Responders: reports,
	}
	if errs := validateEvictionStatus(s, old, start.Add(heartbeatDeadline-time.Minute)); len(errs) != 1 {
		t.Errorf("before the deadline: %v", errs)
	}
	if errs := validateEvictionStatus(s, old, start.Add(heartbeatDeadline)); len(errs) > 0 {
		t.Errorf("after the deadline: %v", errs)
	}
	s.TargetResponders = target(lifecyclev1alpha1.ResponderStateCompleted)
	if errs := validateEvictionStatus(s, old, start.Add(heartbeatDeadline)); len(errs) != 1 {
		t.Errorf("completed without a time: %v", errs)
	}
}

// TestRepeatedTarget checks that a list with a name that the other has not, and another one twice, is refused.
func TestRepeatedTarget(t *testing.T) {
	target := lifecyclev1alpha1.TargetResponder{
		Name: "a.io/b", Priority: ptr.To[int32](5000), State: lifecyclev1alpha1.ResponderStateActive,
	}
	s := &lifecyclev1alpha1.EvictionStatus{
		TargetResponders: []lifecyclev1alpha1.TargetResponder{target, target},
		Responders:       []lifecyclev1alpha1.ResponderStatus{{Name: "a.io/b"}, {Name: "a.io/c"}},
	}
	if errs := validateEvictionStatus(s, &lifecyclev1alpha1.EvictionStatus{}, time.Now()); len(errs) == 0 {
		t.Error("it is accepted")
	}
}

func TestCellsOfResponders(t *testing.T) {
	at := metav1.Unix(1_800_000_000, 0)
	e := &evictionObject{}
	e.Status = lifecyclev1alpha1.EvictionStatus{
		TargetResponders: []lifecyclev1alpha1.TargetResponder{
			{Name: "a.io/b", State: lifecyclev1alpha1.ResponderStateActive}, {Name: "a.io/c"},
		},
		Responders: []lifecyclev1alpha1.ResponderStatus{{
			Name: "a.io/b", StartTime: &at, HeartbeatTime: &at, ExpectedCompletionTime: &at, Message: ptr.To(" m "),
		}},
		Requesters: []lifecyclev1alpha1.Requester{
			{Name: "z.io/r", Intent: lifecyclev1alpha1.RequesterIntentEviction},
			{Name: "b.io/r", Intent: lifecyclev1alpha1.RequesterIntentEviction},
			{Name: "a.io/r", Intent: lifecyclev1alpha1.RequesterIntentWithdrawn},
		},
	}
	const active, status, finish, requested, heartbeat, message = 4, 5, 6, 7, 9, 10
	cells := evictionCells(e)
	for i, want := range map[int]any{
		active: "a.io/b (1/2)", status: registry.Elapsed{Before: "Started (", Since: at.Time, After: " ago)"},
		finish: registry.Distance{To: at.Time}, requested: "b.io/r + 1 more...",
		heartbeat: registry.Elapsed{Since: at.Time, After: " ago"}, message: "m",
	} {
		if cells[i] != want {
			t.Errorf("cell %d is %v, want %v", i, cells[i], want)
		}
	}
	e.Status.TargetResponders[0].State = lifecyclev1alpha1.ResponderStateCompleted
	e.Status.Responders[0].CompletionTime = &at
	cells = evictionCells(e)
	if want := (registry.Elapsed{Before: "Completed (", Since: at.Time, After: " ago)"}); cells[status] != want ||
		cells[finish] != "-" {
		t.Errorf("a completed responder has %v and %v", cells[status], cells[finish])
	}
}

// TestObservedGeneration checks that the observed generation of a status only grows.
func TestObservedGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		old, is *int64
		want    string
	}{
		"none":    {},
		"first":   {nil, ptr.To[int64](2), ""},
		"same":    {ptr.To[int64](2), ptr.To[int64](2), ""},
		"more":    {ptr.To[int64](2), ptr.To[int64](3), ""},
		"less":    {ptr.To[int64](2), ptr.To[int64](1), "status.observedGeneration: Invalid value: 1: may not be decreased from 2"},
		"zero":    {nil, ptr.To[int64](0), "status.observedGeneration: Invalid value: 0: must be greater than or equal to 1"},
		"removed": {ptr.To[int64](2), nil, "status.observedGeneration: Invalid value: null: field cannot be cleared once set"},
	} {
		got := ""
		if err := validateRequestStatus(&lifecyclev1alpha1.EvictionRequestStatus{ObservedGeneration: c.is},
			&lifecyclev1alpha1.EvictionRequestStatus{ObservedGeneration: c.old}).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
