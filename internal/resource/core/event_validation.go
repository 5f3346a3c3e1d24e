package core

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const (
	// maxEventWord is the length of reason, action and reportingInstance of an event, in bytes, and maxEventMessage that
	// of its message.
	// The limits are documented in events.k8s.io/v1.
	maxEventWord    = 128
	maxEventMessage = 1024
)

// isStrict reports whether a request uses the API group events.k8s.io, whose rules are stricter than those of the core
// group. The fields in errors have the names of the core group in both.
func isStrict(ctx context.Context) bool {
	info := request.InfoFrom(ctx)
	return info != nil && info.Group == eventsv1.GroupName
}

// validateEvent validates a new event. In events.k8s.io, the fields that have the prefix deprecated there must
// be unset: they exist so that events of the core group can be read in the new one.
func validateEvent(ctx context.Context, e, _ *corev1.Event) field.ErrorList {
	errs := validateLegacyEvent(e, isStrict(ctx))
	if !isStrict(ctx) {
		return errs
	}
	errs = append(errs, validateEventSeries(e.Series)...)
	errs = append(errs, field.RequiredIf(e.EventTime.IsZero(), field.NewPath("eventTime"), "")...)
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	unset := func(name string, set bool) field.ErrorList {
		return field.InvalidIf(set, field.NewPath(name), "", "needs to be unset")
	}
	return field.Join(errs, unset("firstTimestamp", !e.FirstTimestamp.IsZero()),
		unset("lastTimestamp", !e.LastTimestamp.IsZero()), unset("count", e.Count != 0),
		unset("source", e.Source != corev1.EventSource{}))
}

// validateEventUpdate validates an update. In events.k8s.io only the series and metadata may change.
func validateEventUpdate(ctx context.Context, e, old *corev1.Event) field.ErrorList {
	errs := validateLegacyEvent(e, isStrict(ctx))
	if !isStrict(ctx) {
		return errs
	}
	if !reflect.DeepEqual(e.Series, old.Series) {
		errs = append(errs, validateEventSeries(e.Series)...)
	}
	for _, fixed := range []struct {
		name       string
		value, old any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject},
		{"reason", e.Reason, old.Reason},
		{"reason", e.Reason, old.Reason}, // kube-apiserver reports it twice
		{"message", e.Message, old.Message},
		{"source", e.Source, old.Source},
		{"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp},
		{"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"type", e.Type, old.Type},
		{"eventTime", e.EventTime, old.EventTime},
	} {
		errs = append(errs, declare.Immutable(fixed.value, fixed.old, field.NewPath(fixed.name))...)
	}
	return errs
}

// validateEventSeries validates how often an event has occurred. A series begins with the second occurrence.
func validateEventSeries(s *corev1.EventSeries) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	path := field.NewPath("series")
	errs = append(errs, field.InvalidIf(s.Count < 2, path.Child("count"), "", "should be at least 2")...)
	return append(errs, field.RequiredIf(s.LastObservedTime.IsZero(), path.Child("lastObservedTime"), "")...)
}

// validateLegacyEvent validates what holds in both groups. An event that has an eventTime was written for the rules of
// events.k8s.io, and has the fields that these require.
func validateLegacyEvent(e *corev1.Event, strict bool) field.ErrorList {
	errs := field.InvalidIf(!agreesWithNamespace(e), field.NewPath("involvedObject", "namespace"),
		e.InvolvedObject.Namespace, "does not match event.namespace")
	if !e.EventTime.IsZero() {
		errs = append(errs, validateReporter(e, strict)...)
	}
	return errs
}

// agreesWithNamespace reports whether an event is in the namespace of its object, or, if the object has none, in one
// for events of such objects.
// For example, events about nodes, which have no namespace, are in the namespace default. An event with an
// eventTime may be in another namespace than its object.
func agreesWithNamespace(e *corev1.Event) bool {
	inDefault := e.Namespace == metav1.NamespaceDefault
	switch about := e.InvolvedObject.Namespace; {
	case e.EventTime.IsZero() && about == "":
		return inDefault || e.Namespace == metav1.NamespaceNone
	case e.EventTime.IsZero():
		return e.Namespace == about
	default:
		return about != "" || inDefault || e.Namespace == metav1.NamespaceSystem
	}
}

// validateReporter validates who has reported an event, and what. strict decides only how an error names the
// controller: the field has another name in each group.
func validateReporter(e *corev1.Event, strict bool) (errs field.ErrorList) {
	controller := field.NewPath("reportingComponent")
	if strict {
		controller = field.NewPath("reportingController")
	}
	errs = append(errs, field.NotEmpty(controller, e.ReportingController)...)
	errs = append(errs, field.LabelKey(controller, e.ReportingController)...)
	for _, word := range []struct{ name, value string }{
		{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason},
	} {
		errs = append(errs, field.NotEmpty(field.NewPath(word.name), word.value)...)
		errs = append(errs, validateLength(word.name, word.value, maxEventWord)...)
	}
	return append(errs, validateLength("message", e.Message, maxEventMessage)...)
}

func validateLength(name, value string, most int) field.ErrorList {
	if len(value) > most {
		return field.ErrorList{field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", most))}
	}
	return nil
}
