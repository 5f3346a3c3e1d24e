// Package policystatus checks the types in the expressions of ValidatingAdmissionPolicies, and writes warnings to
// status.typeChecking. The warnings do not change the effect of a policy: an expression that names a field which
// does not exist is stored and evaluated. kube-controller-manager does the same, with the controller
// validatingadmissionpolicy-status-controller.
//
// Each new generation of a policy is checked once, with the kinds that are served then.
//
// Files: kinds.go finds the kinds that a policy is about, schema.go their schemas, and check.go checks the expressions.
package policystatus

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// manager is the field manager of the status.
const manager = "validatingadmissionpolicy-status"

// Documents returns the OpenAPI v3 document of a path such as "apis/apps/v1" as JSON. It fails if there is none.
type Documents func(ctx context.Context, path string) ([]byte, error)

// Controller checks policies.
type Controller struct {
	Registry *registry.Registry
	// Resources are the served resources, Documents returns their schemas.
	Resources *directory.Directory
	Documents Documents
	Client    *client.Client
	Log       *slog.Logger
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part

	types recentTypes
}

// Run works until ctx is done or the store is closed.
func (c *Controller) Run(ctx context.Context) {
	workers.Restart(ctx, c.Log, "cannot watch admission policies for type checks; will start again", c.Activity, c.follow)
}

// follow checks all policies, and later each policy that changes.
func (c *Controller) follow(ctx context.Context) error {
	policies := c.Registry.Resource(
		admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies").GroupResource())
	failed := map[string]*cache.Object{} // policies that could not be checked, by name
	handle := func(o *cache.Object) {
		delete(failed, o.Name)
		if err := c.sync(ctx, policies, o); err != nil && ctx.Err() == nil {
			c.Log.Warn("cannot check the types of an admission policy; will try again", "policy", o.Name, "error", err)
			failed[o.Name] = o
		}
	}
	cursor, err := workers.Begin(ctx, policies, func(o *cache.Object) error {
		handle(o)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	defer cursor.Close()
	c.Activity.Started()
	retry := time.NewTicker(workers.RetryAfter)
	defer retry.Stop()
	for {
		var again <-chan time.Time // nil, which blocks forever, while nothing has failed
		if len(failed) > 0 {
			again = retry.C
		}
		events, _, err := cursor.NextOr(ctx, again)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Object == nil {
				delete(failed, e.Prev.Name)
			} else {
				handle(e.Object)
			}
		}
		if len(events) == 0 {
			for _, o := range failed {
				handle(o)
			}
		}
	}
}

// sync checks a policy and writes its status, unless its generation was checked before.
func (c *Controller) sync(ctx context.Context, policies *registry.Resource, o *cache.Object) error {
	readable, err := policies.Reader.Readable(ctx, o)
	if err != nil {
		return err
	}
	obj, err := policies.Decoder.Decode(ctx, readable)
	if err != nil {
		return err
	}
	policy := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if policy.Generation <= policy.Status.ObservedGeneration {
		return nil
	}
	configuration, err := json.Marshal(&status{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		Metadata: metadata{Name: policy.Name},
		Status: admissionregistrationv1.ValidatingAdmissionPolicyStatus{
			ObservedGeneration: policy.Generation,
			TypeChecking:       &admissionregistrationv1.TypeChecking{ExpressionWarnings: c.check(ctx, policy)},
		},
	})
	if err != nil {
		return err
	}
	_, err = c.Client.As(manager).Apply(ctx, client.ApplyRequest{
		Ref: client.Ref{
			Resource: admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"), Name: policy.Name,
		},
		Subresource: "status", Configuration: configuration,
	})
	if kerrors.IsNotFound(err) { // it was deleted
		return nil
	}
	return err
}

// status is the configuration that is applied.
type status struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metadata                                                `json:"metadata"`
	Status          admissionregistrationv1.ValidatingAdmissionPolicyStatus `json:"status"`
}

type metadata struct {
	Name string `json:"name"`
}
