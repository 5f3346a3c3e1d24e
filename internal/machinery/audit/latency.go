package audit

import (
	"context"
	"time"
)

// A Layer is a part of the server for which the time of a request is measured.
type Layer int

// The layers, in no order.
const (
	Authentication Layer = iota
	Authorization
	Impersonation
	ResponseWrite
	layers // the number of layers
)

// layerKeys are the keys of the annotations.
var layerKeys = [layers]string{
	Authentication: "apiserver.latency.k8s.io/authentication",
	Authorization:  "apiserver.latency.k8s.io/authorization",
	Impersonation:  "apiserver.latency.k8s.io/impersonation",
	ResponseWrite:  "apiserver.latency.k8s.io/response-write",
}

const (
	totalKey = "apiserver.latency.k8s.io/total"
	// A request that takes longer than slowRequest gets latency annotations.
	slowRequest = 500 * time.Millisecond
)

// latencies are the times that a request has spent in each layer.
type latencies [layers]time.Duration

// AddLatency adds to the time that the request has spent in a layer. Events of slow requests
// have these times as annotations.
func AddLatency(ctx context.Context, l Layer, d time.Duration) {
	r := From(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[l] += d
}

// annotate adds the latencies to annotations if total, the time of the whole request, is longer than slowRequest.
// It returns annotations, or a new map if annotations is nil.
func (la *latencies) annotate(annotations map[string]string, total time.Duration) map[string]string {
	if total <= slowRequest {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[totalKey] = total.String()
	for l, d := range la {
		if d > 0 {
			annotations[layerKeys[l]] = d.String()
		}
	}
	return annotations
}
