package audit

import (
	"context"
	"time"
)

// A Layer is a part of the server that a request spends time in.
type Layer int

// The layers, in no order.
const (
	Authentication Layer = iota
	Authorization
	Impersonation
	ResponseWrite
	layers // how many there are
)

// layerKeys are the annotations of layers.
var layerKeys = [layers]string{
	Authentication: "apiserver.latency.k8s.io/authentication",
	Authorization:  "apiserver.latency.k8s.io/authorization",
	Impersonation:  "apiserver.latency.k8s.io/impersonation",
	ResponseWrite:  "apiserver.latency.k8s.io/response-write",
}

const (
	totalKey = "apiserver.latency.k8s.io/total"
	// slow is how long a request takes at least of which the parts are noted.
	slowRequest = 500 * time.Millisecond
)

// latencies are the times that a request spent in each layer.
type latencies [layers]time.Duration

// Spent notes that the request spent time in a layer. Of a slow request the sum of
// each layer becomes an annotation.
func AddLatency(ctx context.Context, l Layer, d time.Duration) {
	r := From(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[l] += d
}

// annotate returns annotations with those of a request that took so long.
func (t *latencies) annotate(annotations map[string]string, total time.Duration) map[string]string {
	if total <= slowRequest {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[totalKey] = total.String()
	for l, d := range t {
		if d > 0 {
			annotations[layerKeys[l]] = d.String()
		}
	}
	return annotations
}
