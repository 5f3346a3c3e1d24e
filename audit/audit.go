// Package audit notes what requests did, for an auditor: who asked for what, what
// the server decided and, where the policy wants it, the objects that went in and
// out. A Record is the note about one request while it is served; at each stage
// that the policy does not omit, an event of the audit.k8s.io/v1 API goes to the
// sink.
package audit

import (
	"context"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Event is one entry of the audit log. One that was handed to a Sink is shared and
// not changed.
type Event = auditv1.Event

// Level says how much is noted about a request; each includes those before it.
type Level int8

// The levels, from the least to the most.
const (
	None Level = iota
	Metadata
	Request
	RequestResponse
)

// levels are the names in policies and events.
var levels = [...]auditv1.Level{auditv1.LevelNone, auditv1.LevelMetadata, auditv1.LevelRequest, auditv1.LevelRequestResponse}

// String returns the level's name.
func (l Level) String() string { return string(levels[l]) }

// ParseLevel returns the level of that name.
func ParseLevel(name auditv1.Level) (Level, bool) {
	for i, known := range levels {
		if known == name {
			return Level(i), true
		}
	}
	return None, false
}

// Stages is a set of stages.
type Stages uint8

// The stages of a request.
const (
	RequestReceived Stages = 1 << iota
	ResponseStarted
	ResponseComplete
	Panic
)

// stages are the names in policies and events.
var stages = map[Stages]auditv1.Stage{
	RequestReceived: auditv1.StageRequestReceived, ResponseStarted: auditv1.StageResponseStarted,
	ResponseComplete: auditv1.StageResponseComplete, Panic: auditv1.StagePanic,
}

// ParseStages returns the set of the named stages; names that are no stage are
// left out.
func ParseStages(names []auditv1.Stage) Stages {
	var set Stages
	for stage, known := range stages {
		for _, name := range names {
			if name == known {
				set |= stage
			}
		}
	}
	return set
}

// Settings are what the policy wants for one request.
type Settings struct {
	Level Level
	// Omit are the stages without an event.
	Omit Stages
	// OmitManagedFields leaves metadata.managedFields out of objects.
	OmitManagedFields bool
}

// Sink takes events. It is called concurrently.
type Sink interface {
	// Write hands events on and says whether that worked as far as the request has
	// to know: a sink that works in the background says true. The slice is the
	// sink's. What goes wrong is reported by the sink itself. It may block, but no
	// longer than ctx and its own budget allow.
	Write(ctx context.Context, events []*Event) bool
	// Close hands on what is waiting, until ctx ends. No Write follows.
	Close(ctx context.Context) error
}

// Report is told that events could not be handled by a part of a sink: log,
// webhook, buffered or truncate.
type Report func(part string, err error, events []*Event)

// Union hands events to all of its sinks.
type Union []Sink

// Write implements Sink. It works if it works for each.
func (u Union) Write(ctx context.Context, events []*Event) bool {
	ok := true
	for _, s := range u {
		ok = s.Write(ctx, append([]*Event(nil), events...)) && ok
	}
	return ok
}

// Close implements Sink.
func (u Union) Close(ctx context.Context) error {
	var first error
	for _, s := range u {
		if err := s.Close(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}
