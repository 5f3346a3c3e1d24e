// Package components computes the objects of the resource componentstatuses.
package components

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// timeout limits the health request to a component.
const timeout = 20 * time.Second

// component is a part of the control plane in the resource componentstatuses: one that runs beside this server.
type component struct {
	name string
	// health reports whether the component is healthy, and its response.
	health func(ctx context.Context) (well bool, message string)
}

// List are the parts of a control plane.
type List []component

// New returns the etcd servers of the store, and the scheduler and controller manager at their default
// ports on this machine.
func New(store storage.Store, servers int) List {
	const controllerManager, scheduler = 10257, 10259
	list := List{
		{"controller-manager", localHealth(controllerManager)},
		{"scheduler", localHealth(scheduler)},
	}
	for i := range max(servers, 1) {
		list = append(list, component{fmt.Sprintf("etcd-%d", i), storeHealth(store)})
	}
	return list
}

// Statuses requests the health of the component with this name, or of all components if name is "". It takes at
// most timeout. It implements rest.Computed.
func (list List) Statuses(ctx context.Context, name string) ([]registry.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var objs []registry.Object
	var running sync.WaitGroup
	for _, c := range list {
		if name != "" && name != c.name {
			continue
		}
		o := &corev1.ComponentStatus{}
		o.Name = c.name
		objs = append(objs, o)
		running.Go(func() {
			condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse}
			var well bool
			if well, condition.Message = c.health(ctx); well {
				condition.Status = corev1.ConditionTrue
			}
			o.Conditions = []corev1.ComponentCondition{condition}
		})
	}
	running.Wait()
	return objs, nil
}

// client is the HTTP client for components. It accepts their self-signed certificates.
var client = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	DisableKeepAlives: true,
}}

func localHealth(port int) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/healthz", port), nil)
		if err != nil {
			return false, err.Error()
		}
		answer, err := client.Do(r)
		if err != nil {
			return false, err.Error()
		}
		defer answer.Body.Close() //nolint:errcheck // it was read
		if answer.StatusCode < http.StatusOK {
			// The body of a 101 is the connection, whose reads have no deadline.
			return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", answer.StatusCode)
		}
		const most = 10 << 10
		body, err := io.ReadAll(io.LimitReader(answer.Body, most))
		switch {
		case err != nil:
			return false, err.Error()
		case answer.StatusCode >= http.StatusBadRequest:
			return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", answer.StatusCode)
		}
		return true, string(body)
	}
}

func storeHealth(store storage.Store) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		if _, err := store.Revision(ctx); err != nil {
			return false, err.Error()
		}
		return true, "ok"
	}
}
