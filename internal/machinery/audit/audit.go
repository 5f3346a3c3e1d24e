// Package audit writes the audit log: who requested what, how the server decided and, if the
// policy asks for it, the objects of request and response. A Record collects this for one
// request. At each stage that the policy does not omit, it writes an event of the API
// audit.k8s.io/v1 to the sink.
package audit

import (
	"context"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Event is one entry of the audit log. An event that was passed to a Sink is shared and must
// not be changed.
type Event = auditv1.Event

// Level is how much is recorded about a request. Each level includes those before it.
type Level int8

// The levels, from the least to the most.
const (
	None Level = iota
	Metadata
	Request
	RequestResponse
)

// levels has the names of the levels in policies and events.
var levels = [...]auditv1.Level{auditv1.LevelNone, auditv1.LevelMetadata, auditv1.LevelRequest,
	auditv1.LevelRequestResponse}

// String returns the name of the level.
func (l Level) String() string { return string(levels[l]) }

// ParseLevel returns the level with that name.
func ParseLevel(name auditv1.Level) (Level, bool) {
	i := slices.Index(levels[:], name)
	return Level(max(i, 0)), i >= 0
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

// stages has the names of the stages in policies and events.
var stages = map[Stages]auditv1.Stage{
	RequestReceived: auditv1.StageRequestReceived, ResponseStarted: auditv1.StageResponseStarted,
	ResponseComplete: auditv1.StageResponseComplete, Panic: auditv1.StagePanic,
}

// ParseStages returns the set of the named stages. It ignores unknown names.
func ParseStages(names []auditv1.Stage) Stages {
	var set Stages
	for stage, known := range stages {
		if slices.Contains(names, known) {
			set |= stage
		}
	}
	return set
}

// Settings are the configuration of the policy for one request.
type Settings struct {
	Level Level
	// Omit is the set of stages without an event.
	Omit Stages
	// OmitManagedFields removes metadata.managedFields from recorded objects.
	OmitManagedFields bool
}

// Sink receives events. It is called concurrently.
type Sink interface {
	// Write takes events; the sink owns the slice from then on. It returns false if the request has to fail
	// because the events could not be written; a sink that writes in the background returns true. The sink reports
	// errors itself. Write may block, until ctx is done or the sink's own time limit is over.
	Write(ctx context.Context, events []*Event) bool
	// Close writes the waiting events, until ctx is done. Write is not called after Close.
	Close(ctx context.Context) error
}

// Report is called when a part of a sink could not handle events. part is log, webhook,
// buffered or truncate.
type Report func(part string, err error, events []*Event)

// Union passes events to all of its sinks.
type Union []Sink

// Write implements Sink. It returns true if all sinks do.
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
