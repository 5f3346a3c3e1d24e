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

	"github.com/keelson-dev/keelson/client"
	"github.com/keelson-dev/keelson/registry"
)

// A definition is served once its names are accepted; that and what else the
// server finds out about it are its conditions.

// reconcile gives definitions their conditions until ctx ends, one at a time: which names
// are free depends on what the others were given before.
func (s *Server) reconcile(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.work.ShutDown)
	defer stop()
	for {
		name, ended := s.work.Get()
		if ended || ctx.Err() != nil {
			return
		}
		s.reconcileOne(ctx, name)
	}
}

// reconcileOne gives one definition its conditions, and tries again later if that fails.
func (s *Server) reconcileOne(ctx context.Context, name string) {
	defer s.work.Done(name) // after a panic too: otherwise the name would never be got again
	if err := s.look(ctx, name); err != nil && ctx.Err() == nil {
		s.o.Log.Warn("a custom resource definition will be looked at again", "name", name, "error", err)
		time.AfterFunc(retryAfter, func() { s.work.Add(name) })
	}
}

// look writes the status that a definition should have, where it has not.
func (s *Server) look(ctx context.Context, name string) error {
	s.mu.Lock()
	d := s.byName[name]
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	if d.deleting && d.cleanup {
		s.finish(ctx, d)
	}
	if _, changed := s.want(d.group, &d.names, d.approval, d.badAuthority, d.status); !changed {
		return nil
	}
	var after status
	err := s.writeStatus(ctx, name, func(obj *apiextensionsv1.CustomResourceDefinition) {
		now := status{names: obj.Status.AcceptedNames, conditions: obj.Status.Conditions}
		after, _ = s.want(obj.Spec.Group, &obj.Spec.Names, obj.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation], badAuthority(obj.Spec.Conversion), now)
		obj.Status.AcceptedNames, obj.Status.Conditions = after.names, after.conditions
	})
	if kerrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		s.given(d, after)
	}
	return err
}

// given takes note of the names that a definition was given, before the change
// comes back from the store, and looks again at those that may want one it gave up.
func (s *Server) given(d *definition, after status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sameNames(&d.status.names, &after.names) {
		s.reconsider(d.group)
	}
	if s.byName[d.name] != d {
		return // the change came back already, or another one
	}
	copied := *d
	copied.status = after
	s.byName[d.name] = &copied
	s.enter(d, &copied)
}

// writeStatus changes a definition's status as the server's own field manager.
func (s *Server) writeStatus(ctx context.Context, name string, change func(*apiextensionsv1.CustomResourceDefinition)) error {
	ref := client.Ref{Resource: apiextensionsv1.SchemeGroupVersion.WithResource(resource.Resource), Name: name}
	_, err := s.o.Client.Update(ctx, client.UpdateRequest{Ref: ref, Subresource: "status", Change: func(obj registry.Object) error {
		change(obj.(*apiextensionsv1.CustomResourceDefinition))
		return nil
	}})
	return err
}

// want is the status that a definition should have, and whether it differs. Names
// are looked at as long as it has not all that it wants: conditions that somebody
// took away afterwards do not come back.
func (s *Server) want(group string, wanted *names, approval string, badAuthority bool, now status) (status, bool) {
	out := status{names: now.names, conditions: slices.Clone(now.conditions)}
	changed := false
	set := func(c condition) {
		if old := out.condition(c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return
		}
		changed = true
		out.set(c, s.o.Now())
	}
	if c, ok := approvalCondition(group, approval); ok {
		set(c)
	}
	if !sameNames(wanted, &now.names) {
		given, accepted := s.takenIn(group, wanted).accept(*wanted, now.names)
		changed = changed || !sameNames(&given, &now.names)
		out.names = given
		set(accepted)
		if out.condition(apiextensionsv1.Established) == nil {
			set(notAccepted)
		}
	}
	if out.namesAccepted() && !out.established() {
		set(establishedCondition(badAuthority))
	}
	return out, changed
}

// takenIn are those of the wanted names that definitions of a group have.
func (s *Server) takenIn(group string, wanted *names) taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.ledgers[group]; l != nil {
		return l.taken(wanted)
	}
	return newTaken()
}

// notAccepted is the first condition of a definition whose names others have.
var notAccepted = condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "NotAccepted", Message: "not all names are accepted"}

// establishedCondition is that of a definition whose names are accepted.
func establishedCondition(badAuthority bool) condition {
	if badAuthority {
		return condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "InvalidCABundle", Message: "The conversion webhook CABundle is invalid"}
	}
	return condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"}
}

// set adds or replaces a condition; its time moves when its status does.
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

// protected says whether a group belongs to Kubernetes, so that its definitions
// need an approval (KEP-1111).
func protected(group string) bool {
	return strings.HasSuffix(group, ".k8s.io") || strings.HasSuffix(group, ".kubernetes.io") || group == "k8s.io" || group == "kubernetes.io"
}

// approvalCondition says whether a definition of a protected group was approved.
func approvalCondition(group, annotation string) (condition, bool) {
	if !protected(group) {
		return condition{}, false
	}
	c := condition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse}
	switch u, err := url.ParseRequestURI(annotation); {
	case annotation == "":
		c.Reason = "MissingAnnotation"
		c.Message = fmt.Sprintf("protected groups must have approval annotation %q, see https://github.com/kubernetes/enhancements/pull/1111", apiextensionsv1.KubeAPIApprovedAnnotation)
	case strings.HasPrefix(annotation, "unapproved"):
		c.Reason, c.Message = "UnapprovedAnnotation", fmt.Sprintf("not approved: %q", annotation)
	case err == nil && u.Host != "" && u.Scheme != "":
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionTrue, "ApprovedAnnotation", "approved in "+annotation
	default:
		c.Reason = "InvalidAnnotation"
		c.Message = fmt.Sprintf("protected groups must have approval annotation %q with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111", apiextensionsv1.KubeAPIApprovedAnnotation)
	}
	return c, true
}
