package core

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// eventTTLSeconds is how long an event is kept after its last write.
// It is the default of the flag --event-ttl of kube-apiserver, 1 hour.
const eventTTLSeconds = 3600

// referenceFields are the selectable fields of the object reference in an event, with their
// protobuf numbers.
var referenceFields = []registry.Field{
	{Name: "kind", Path: []int32{1}}, {Name: "namespace", Path: []int32{2}}, {Name: "name", Path: []int32{3}},
	{Name: "uid", Path: []int32{4}}, {Name: "apiVersion", Path: []int32{5}}, {Name: "resourceVersion", Path: []int32{6}},
	{Name: "fieldPath", Path: []int32{7}},
}

func events() *registry.Kind {
	doc := corev1.Event{}.SwaggerDoc()
	fields := []registry.Field{
		{Name: "reason", Path: []int32{3}},
		{Name: "type", Path: []int32{9}},
		{Name: "reportingComponent", Path: []int32{14}},
		// Events of the new API have reportingController in place of source.component.
		{Name: "source", Get: func(o registry.Object) string {
			e := o.(*corev1.Event)
			return cmp.Or(e.Source.Component, e.ReportingController)
		}},
	}
	// The group events.k8s.io has other field labels, and does not support the old ones.
	renamed := map[string]string{"reason": "reason", "type": "type", "reportingController": "reportingComponent"}
	for _, f := range referenceFields {
		fields = append(fields, registry.Field{Name: "involvedObject." + f.Name, Path: []int32{2, f.Path[0]}})
		renamed["regarding."+f.Name] = "involvedObject." + f.Name
	}
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "events", Name: "Event", ShortNames: []string{"ev"}, Namespaced: true,
		},
		Versions: []registry.Version{
			{Name: "v1", New: func() registry.Object { return &corev1.Event{} }},
			{
				Name: "v1", Group: eventsv1.GroupName, New: func() registry.Object { return &eventsv1.Event{} },
				ToStorage:    registry.Converter(func(e *eventsv1.Event) (registry.Object, error) { return eventToCore(e), nil }),
				FromStorage:  registry.Converter(func(e *corev1.Event) (registry.Object, error) { return eventFromCore(e), nil }),
				FieldAliases: renamed, Metadata: &registry.Metadata{},
			},
		},
		Storage:  registry.Storage{Version: "v1", Path: "events", TTLSeconds: eventTTLSeconds},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true, UncachedGet: true},
		Metadata: registry.Metadata{
			// kube-apiserver validates names and finalizers of events only through events.k8s.io.
			ValidateName: func(string, bool) []string { return nil },
			AnyFinalizer: true, OnUpdate: registry.MetaNothing,
		},
		Selection: registry.Selection{Fields: fields, FieldError: declare.FieldLabel},
		Strategy: registry.Strategy[*corev1.Event]{
			InContext: registry.InContext[*corev1.Event]{
				ValidateCreate: validateEvent, ValidateUpdate: validateEventUpdate,
			},
		}.Untyped(),
		Table: registry.Table[*corev1.Event]{
			Columns: []metav1.TableColumnDefinition{
				table.Column("Last Seen", "string", doc["lastTimestamp"]),
				table.Column("Type", "string", doc["type"]),
				table.Column("Reason", "string", doc["reason"]),
				table.Column("Object", "string", doc["involvedObject"]),
				table.Wide("Subobject", "string", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"]),
				table.Wide("Source", "string", doc["source"]),
				table.Column("Message", "string", doc["message"]),
				table.Wide("First Seen", "string", doc["firstTimestamp"]),
				table.Wide("Count", "string", doc["count"]),
				table.OnlyWide(table.Name),
			},
			Cells: eventCells,
		}.Untyped(),
	}
}

// eventToCore converts an event of events.k8s.io (KEP-383) to the stored version. The two types have the same
// content by different names: note is message, regarding is involvedObject, and deprecatedSource is source.
func eventToCore(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Related: e.Related, Reason: e.Reason, Message: e.Note,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp,
		Count: e.DeprecatedCount, Type: e.Type, EventTime: e.EventTime, Action: e.Action,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if s := e.Series; s != nil {
		out.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return out
}

// eventFromCore is the inverse of eventToCore. Both share slices and pointers with their argument.
func eventFromCore(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, Regarding: e.InvolvedObject, Related: e.Related, Reason: e.Reason, Note: e.Message,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp,
		DeprecatedCount: e.Count, Type: e.Type, EventTime: e.EventTime, Action: e.Action,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if s := e.Series; s != nil {
		out.Series = &eventsv1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return out
}

// eventCells returns the cells for both kinds of events: older clients set firstTimestamp, lastTimestamp and
// count, newer ones eventTime and, if the event repeats, a series. A single event of a newer client has the
// count 0, and is shown with 1.
func eventCells(e *corev1.Event) []any {
	first := table.AgeOf(e.FirstTimestamp)
	if e.FirstTimestamp.IsZero() {
		first = table.MicroAgeOf(e.EventTime)
	}
	last, count := table.AgeOf(e.LastTimestamp), e.Count
	if e.LastTimestamp.IsZero() {
		last = first
	}
	if e.Series != nil {
		last, count = table.MicroAgeOf(e.Series.LastObservedTime), e.Series.Count
	} else if count == 0 {
		count = 1
	}
	target := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		target += "/" + e.InvolvedObject.Name
	}
	source := cmp.Or(e.Source.Component, e.ReportingController)
	if instance := cmp.Or(e.Source.Host, e.ReportingInstance); instance != "" {
		source += ", " + instance
	}
	return []any{
		last, e.Type, e.Reason, target, e.InvolvedObject.FieldPath, source,
		strings.TrimSpace(e.Message), first, int64(count), e.Name,
	}
}
