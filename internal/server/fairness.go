package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/crd"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	fairnessfilter "github.com/keelson-dev/keelson/internal/gateway/filter/fairness"
	"github.com/keelson-dev/keelson/internal/gateway/filter/inflight"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/server/background"
)

// fairness is API priority and fairness: the controller, and what keeps its configuration up to date.
type fairness struct {
	controller *flowcontrol.Controller
	registry   *registry.Registry
	custom     *crd.Server
	keeper     *bootstrap.Keeper // writes the conditions of flow schemas
	log        *slog.Logger
	bySize     bool          // the seats of lists are estimated by bytes
	changed    chan struct{} // has an element if the configuration has changed

	mu      sync.Mutex // guards what follows
	schemas map[string]*flowcontrolv1.FlowSchema
	levels  map[string]*flowcontrolv1.PriorityLevelConfiguration

	sizesMu sync.RWMutex // guards sizes
	sizes   map[schema.GroupResource]flowcontrol.Size
}

const (
	// settleTime is the time in which changes of the configuration are collected before they take effect together.
	settleTime = 20 * time.Millisecond
	// sizePeriod is the interval in which the objects of each resource are counted.
	sizePeriod = 10 * time.Second
)

// startFairness creates the controller with the current configuration, which the server follows from then on. It does
// nothing if API priority and fairness is switched off.
func (s *starting) startFairness(ctx context.Context) error {
	c := s.config
	if c.Requests.NoPriorityAndFairness {
		return nil
	}
	f := &fairness{
		registry: s.registry, custom: s.api.custom.Server, keeper: s.controlPlane.keeper, log: s.log,
		bySize: s.gates.Enabled(features.SizeBasedListCostEstimate), changed: make(chan struct{}, 1),
		schemas: map[string]*flowcontrolv1.FlowSchema{}, levels: map[string]*flowcontrolv1.PriorityLevelConfiguration{},
	}
	f.controller = flowcontrol.New(flowcontrol.Options{
		ReadOnly: c.Requests.MaxInFlight, Mutating: c.Requests.MaxMutatingInFlight, Sizes: f.size,
	})
	run := func(name string, work func(context.Context)) { s.work.Go(name, background.Forever(work)) }
	schemas := follow[*flowcontrolv1.FlowSchema](f, "flowschemas", f.schemas)
	levels := follow[*flowcontrolv1.PriorityLevelConfiguration](f, "prioritylevelconfigurations", f.levels)
	schemas.Log, levels.Log = s.log, s.log
	if _, err := informer.Start(ctx, run, fairnessRunners, schemas, levels); err != nil {
		return fmt.Errorf("following the configuration of priority and fairness: %w", err)
	}
	f.configure()
	f.count()
	run(fairnessConfig, f.run)
	run(fairnessSeats, f.controller.Run)
	s.metrics.Register(f.controller.Collector(), f.controller.QueueCollector())
	s.fairness = f
	return nil
}

// follow returns the options of an informer that keeps a map of the objects of a resource up to date.
func follow[T registry.Object](f *fairness, resource string, objects map[string]T) informer.Options {
	apply := func(changes []informer.Change) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range changes {
			if obj, ok := c.Object.(T); ok {
				objects[c.Name] = obj
			} else {
				delete(objects, c.Name)
			}
		}
		select {
		case f.changed <- struct{}{}:
		default: // it is known already
		}
	}
	return informer.Options{
		Resource: f.registry.Resource(flowcontrolv1.Resource(resource)), Apply: apply,
		Reset: func(all []informer.Change) {
			f.mu.Lock()
			clear(objects)
			f.mu.Unlock()
			apply(all)
		},
	}
}

// configure gives the controller the current configuration.
func (f *fairness) configure() {
	f.mu.Lock()
	schemas, levels := slices.Collect(maps.Values(f.schemas)), slices.Collect(maps.Values(f.levels))
	f.mu.Unlock()
	f.controller.Configure(schemas, levels)
}

// run applies changes of the configuration, sets the conditions of flow schemas, and counts objects, until ctx ends.
func (f *fairness) run(ctx context.Context) {
	ticker := time.NewTicker(sizePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.count()
		case <-f.changed:
			if background.Sleep(ctx, settleTime) != nil {
				return
			}
			f.configure()
			if err := f.keeper.UpdateDangling(ctx); err != nil && ctx.Err() == nil {
				f.log.Warn("cannot update the conditions of flow schemas; will try again", "error", err)
			}
		}
	}
}

// count counts the objects of the resources that are in use.
func (f *fairness) count() {
	sizes := map[schema.GroupResource]flowcontrol.Size{}
	for _, r := range f.registry.Resources() {
		if n, bytes, ok := r.Reader.Size(); ok {
			key := schema.GroupResource{Group: r.Kind.Group, Resource: r.Kind.Resource}
			sizes[key] = flowcontrol.Size{Objects: int64(n), Bytes: bytes}
		}
	}
	f.custom.Objects(func(group, resource string, n int, bytes int64) {
		sizes[schema.GroupResource{Group: group, Resource: resource}] = flowcontrol.Size{Objects: int64(n), Bytes: bytes}
	})
	f.sizesMu.Lock()
	defer f.sizesMu.Unlock()
	f.sizes = sizes
}

// size returns how many objects a resource had when they were counted last.
func (f *fairness) size(group, resource string) (flowcontrol.Size, bool) {
	f.sizesMu.RLock()
	defer f.sizesMu.RUnlock()
	s, ok := f.sizes[schema.GroupResource{Group: group, Resource: resource}]
	if !f.bySize {
		s.Bytes = 0
	}
	return s, ok
}

// limitRequests returns the filter that limits the requests in flight, and how many there are.
func (s *starting) limitRequests() (filter func(http.Handler) http.Handler, current func() (int64, int64)) {
	if f := s.fairness; f != nil {
		return fairnessfilter.New(f.controller, s.config.Requests.Timeout), f.controller.Current
	}
	limiter := inflight.New(int64(s.config.Requests.MaxInFlight), int64(s.config.Requests.MaxMutatingInFlight))
	return limiter.Filter, limiter.Current
}

// pages returns the controller, which serves pages about its state; nil if API priority and fairness is switched off.
func (f *fairness) pages() *flowcontrol.Controller {
	if f == nil {
		return nil
	}
	return f.controller
}
