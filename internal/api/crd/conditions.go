package crd

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// The server sets the conditions of a definition: NamesAccepted, Established, and for a protected group
// KubernetesAPIApprovalPolicyConformant. A definition is served once its names are accepted.

// reconcile sets the conditions of the definitions in the queue until ctx ends. It works on one definition at a
// time, because the names that are free depend on the names that other definitions have been accepted with.
func (s *Server) reconcile(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.work.ShutDown)
	defer func() {
		stop()
		if ctx.Err() != nil { // stop may have prevented AfterFunc; after a panic the queue is needed again
			s.work.ShutDown()
		}
	}()
	for {
		name, ended := s.work.Get()
		if ended || ctx.Err() != nil {
			return
		}
		s.reconcileOne(ctx, name)
	}
}

// reconcileOne sets the conditions of one definition. After a failure the definition is queued again in retryAfter.
func (s *Server) reconcileOne(ctx context.Context, name string) {
	defer s.o.Activity.Add(-1)
	defer s.work.Done(name) // deferred: without it, a panic would keep the name out of the queue forever
	if err := s.syncStatus(ctx, name); err != nil && ctx.Err() == nil {
		s.o.Log.Warn(
			"setting the status of a custom resource definition failed; it will be tried again", "name", name, "error", err,
		)
		s.addLater(name)
	}
}

// syncStatus writes the status of a definition if it differs from the desired status, and starts the deletion of
// its objects if the definition is being deleted.
func (s *Server) syncStatus(ctx context.Context, name string) error {
	s.mu.Lock()
	d := s.byName[name]
	s.mu.Unlock()
	if d == nil || s.o.ReadOnly {
		return nil
	}
	if d.deleting && d.hasFinalizer {
		s.startDeletingObjects(ctx, d)
	}
	if _, changed := s.desiredStatus(d.group, &d.names, d.approval, d.invalidCABundle, d.status); !changed {
		return nil
	}
	var after status
	err := s.writeStatus(ctx, name, func(obj *apiextensionsv1.CustomResourceDefinition) error {
		now := status{names: obj.Status.AcceptedNames, conditions: obj.Status.Conditions}
		approval := obj.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]
		after, _ = s.desiredStatus(obj.Spec.Group, &obj.Spec.Names, approval, invalidCABundle(obj.Spec.Conversion), now)
		obj.Status.AcceptedNames, obj.Status.Conditions = after.names, after.conditions
		return nil
	})
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		s.recordStatus(d, after)
	}
	return err
}

// recordStatus stores the written status of d in memory before the watch reports the change. If the accepted names
// changed, definitions of the group with a conflict are queued again, because a name may have become free.
func (s *Server) recordStatus(d *definition, after status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sameNames(&d.status.names, &after.names) {
		s.reconsider(d.group)
	}
	if s.byName[d.name] != d {
		return // the watch already reported this change or a later one
	}
	copied := *d
	copied.status = after
	s.byName[d.name] = &copied
	s.updateGroupNames(d, &copied)
}

// writeStatus changes a definition's status as the server's own field manager.
func (s *Server) writeStatus(
	ctx context.Context, name string, change func(*apiextensionsv1.CustomResourceDefinition) error,
) error {
	ref := client.Ref{Resource: apiextensionsv1.SchemeGroupVersion.WithResource(resource.Resource), Name: name}
	_, err := s.o.Client.Update(ctx, client.UpdateRequest{Ref: ref, Subresource: "status", Change: func(obj registry.Object) error {
		return change(obj.(*apiextensionsv1.CustomResourceDefinition))
	}})
	return err
}

// desiredStatus returns the status that a definition should have, and whether it differs from now. Names and the
// Established condition are only computed while the accepted names differ from the wanted ones, so conditions that
// a client removed afterwards are not set again.
func (s *Server) desiredStatus(
	group string, wanted *names, approval string, invalidCABundle bool, now status,
) (status, bool) {
	out := status{names: now.names, conditions: slices.Clone(now.conditions)}
	changed := false
	set := func(c condition) {
		if old := out.condition(c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason &&
			old.Message == c.Message {
			return
		}
		changed = true
		out.set(c, s.o.Now())
	}
	if c, ok := approvalCondition(group, approval); ok {
		set(c)
	}
	if !sameNames(wanted, &now.names) {
		assigned, accepted := s.namesInUse(group, wanted).accept(*wanted, now.names)
		changed = changed || !sameNames(&assigned, &now.names)
		out.names = assigned
		set(accepted)
		if out.condition(apiextensionsv1.Established) == nil {
			set(notAcceptedCondition)
		}
	}
	if out.namesAccepted() && !out.established() {
		set(establishedCondition(invalidCABundle))
	}
	return out, changed
}

// namesInUse reports for each wanted name whether a definition of the group uses it.
func (s *Server) namesInUse(group string, wanted *names) usedNames {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.namesByGroup[group]; l != nil {
		return l.used(wanted)
	}
	return newUsedNames()
}

// notAcceptedCondition is the first Established condition of a definition whose names are in use by others.
var notAcceptedCondition = newCondition(
	apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "NotAccepted", "not all names are accepted")

// establishedCondition returns the Established condition of a definition whose names are accepted.
func establishedCondition(invalidCABundle bool) condition {
	if invalidCABundle {
		return newCondition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse,
			"InvalidCABundle", "The conversion webhook CABundle is invalid")
	}
	return newCondition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue,
		"InitialNamesAccepted", "the initial names have been accepted")
}

// set adds or replaces a condition. lastTransitionTime becomes now if the condition is new or its status changes.
func (s *status) set(c condition, now time.Time) {
	c.LastTransitionTime = metav1.Time{Time: now}.Rfc3339Copy()
	old := s.condition(c.Type)
	if old == nil {
		s.conditions = append(s.conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}

// protected reports whether a group belongs to Kubernetes, so that its definitions need an approval (KEP-1111).
func protected(group string) bool {
	return strings.HasSuffix(group, ".k8s.io") || strings.HasSuffix(group, ".kubernetes.io") || group == "k8s.io" ||
		group == "kubernetes.io"
}

// approvalCondition returns the condition KubernetesAPIApprovalPolicyConformant, and false if the group is not
// protected.
func approvalCondition(group, annotation string) (condition, bool) {
	if !protected(group) {
		return condition{}, false
	}
	c := condition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse}
	switch u, err := url.ParseRequestURI(annotation); {
	case annotation == "":
		c.Reason = "MissingAnnotation"
		c.Message = fmt.Sprintf(
			"protected groups must have approval annotation %q, see https://github.com/kubernetes/enhancements/pull/1111",
			apiextensionsv1.KubeAPIApprovedAnnotation,
		)
	case strings.HasPrefix(annotation, "unapproved"):
		c.Reason, c.Message = "UnapprovedAnnotation", fmt.Sprintf("not approved: %q", annotation)
	case err == nil && u.Host != "" && u.Scheme != "":
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionTrue, "ApprovedAnnotation", "approved in "+annotation
	default:
		c.Reason = "InvalidAnnotation"
		c.Message = fmt.Sprintf(
			"protected groups must have approval annotation %q with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
			apiextensionsv1.KubeAPIApprovedAnnotation,
		)
	}
	return c, true
}
