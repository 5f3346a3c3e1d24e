package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type evictionObject = lifecyclev1alpha1.Eviction

func eviction() *registry.Kind {
	responder, status := lifecyclev1alpha1.ResponderStatus{}.SwaggerDoc(), lifecyclev1alpha1.EvictionStatus{}.SwaggerDoc()
	target := lifecyclev1alpha1.EvictionSpec{}.SwaggerDoc()["target"]
	return &registry.Kind{
		Names: registry.Names{
			Group: lifecyclev1alpha1.GroupName, Package: "lifecycle", Resource: "evictions", Name: "Eviction",
			Namespaced: true,
		},
		Versions:     []registry.Version{declare.Version[evictionObject]("v1alpha1", nil)},
		Storage:      registry.Storage{Version: "v1alpha1", Path: "evictions"},
		Metadata:     registry.Metadata{ValidateName: anyName},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*evictionObject]{
			Generation: true, StatusKeepsMeta: true,
			ValidateCreate: func(e *evictionObject) field.ErrorList {
				return append(validateName(e.Name), validateEviction(&e.Spec, nil)...)
			},
			ValidateUpdate: func(e, old *evictionObject) field.ErrorList { return validateEviction(&e.Spec, &old.Spec) },
			ValidateStatusUpdate: func(e, old *evictionObject) field.ErrorList {
				return validateEvictionStatus(&e.Status, &old.Status, time.Now())
			},
		}.Untyped(),
		Table: registry.Table[*evictionObject]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Target", "string", target),
				table.Column("Target Type", "string", target),
				table.Column("Status", "string", status["conditions"]),
				table.Column("Active Responder", "string", lifecyclev1alpha1.TargetResponder{}.SwaggerDoc()["state"]),
				table.Column("Responder Status", "string", responder[""]),
				table.Column("Responder Expected Finish", "string", responder["expectedCompletionTime"]),
				table.Column("Requesters", "string", status["requesters"]),
				table.Age,
				table.Wide("Responder Heartbeat", "string", responder["heartbeatTime"]),
				table.Wide("Responder Status Message", "string", responder["message"]),
			},
			Cells: evictionCells,
		}.Untyped(),
	}
}

// evictionCells returns the cells of a row. The column of the active responder shows how many have begun and how
// many there are, for example acme.io/drain (1/3). Before the first has begun it shows <unset> (0/3).
func evictionCells(e *evictionObject) []any {
	name, kind := table.Unset, table.Unset
	if pod := e.Spec.Target.Pod; pod != nil {
		name, kind = pod.Name, "Pod"
	}
	current, begun := currentResponder(e.Status.TargetResponders)
	active := table.Unset
	cells := responderCells{status: table.Unset, finish: table.Unknown, heartbeat: table.Unset, message: table.Unset}
	if current != nil {
		active = current.Name
		if s := declare.Named(e.Status.Responders, current.Name, nameOfStatus); s != nil {
			cells.set(current.State, s)
		}
	}
	return []any{
		e.Name, name, kind, progress(e.Status.ObservedGeneration, e.Status.Conditions),
		fmt.Sprintf("%s (%d/%d)", active, begun, len(e.Status.TargetResponders)), cells.status, cells.finish,
		requesters(e.Status.Requesters), table.AgeOf(e.CreationTimestamp), cells.heartbeat, cells.message,
	}
}

// currentResponder returns the last responder that is active, otherwise the last one that has ended, nil if none has begun;
// and how many have begun.
func currentResponder(responders []lifecyclev1alpha1.TargetResponder) (*lifecyclev1alpha1.TargetResponder, int) {
	var active, ended *lifecyclev1alpha1.TargetResponder
	begun := 0
	for i := range responders {
		switch r := &responders[i]; {
		case r.State == lifecyclev1alpha1.ResponderStateActive:
			active = r
			begun++
		case isFinal(r.State):
			ended = r
			begun++
		}
	}
	if active == nil {
		return ended, begun
	}
	return active, begun
}

// responderCells are the cells about the current responder.
type responderCells struct{ status, finish, heartbeat, message any }

// set fills the cells from what the current responder has reported. An ended responder has no expected end any
// more, so finish is "-". Times are cells that depend on the time of reading, such as Started (5m ago).
func (c *responderCells) set(state lifecyclev1alpha1.ResponderStateType, s *lifecyclev1alpha1.ResponderStatus) {
	c.status = string(state)
	switch {
	case isFinal(state):
		c.finish = "-"
		if t := s.CompletionTime; t != nil && state == lifecyclev1alpha1.ResponderStateCompleted {
			c.status = registry.Elapsed{Before: string(state) + " (", Since: t.Time, After: " ago)"}
		}
	case s.StartTime != nil:
		c.status = registry.Elapsed{Before: "Started (", Since: s.StartTime.Time, After: " ago)"}
		if t := s.ExpectedCompletionTime; t != nil {
			c.finish = registry.Distance{To: t.Time}
		}
	}
	if t := s.HeartbeatTime; t != nil {
		c.heartbeat = registry.Elapsed{Since: t.Time, After: " ago"}
	}
	if message := strings.TrimSpace(ptr.Deref(s.Message, "")); message != "" {
		c.message = message
	}
}

// requesters names the first of those who want the eviction.
func requesters(list []lifecyclev1alpha1.Requester) string {
	var names []string
	for i := range list {
		if list[i].Intent != lifecyclev1alpha1.RequesterIntentWithdrawn {
			names = append(names, list[i].Name)
		}
	}
	switch {
	case len(list) == 0:
		return table.None
	case names == nil:
		// All requesters have withdrawn. The eviction is then canceled; the requesters stay in the list.
		return "<withdrawn>"
	}
	slices.Sort(names)
	return table.FirstOf(names, 1, ",")
}
