package core

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// bindings declares the older API for pods/binding: POST to the resource itself, with the name
// of the pod as the name of the Binding. No Bindings are stored.
func bindings(gates *PodGates) *registry.Kind {
	post := bindingSubresource("", gates)
	return &registry.Kind{
		Names:        registry.Names{Package: "core", Resource: "bindings", Name: "Binding", Namespaced: true},
		Versions:     onlyV1[corev1.Binding](nil),
		Storage:      registry.Storage{Version: "v1"},
		Requests:     registry.Requests{Verbs: []string{"create"}},
		Subresources: []registry.Subresource{post},
	}
}

// bindingSubresource declares a POST of a Binding: to pods/binding, or with an empty name to the resource
// bindings itself. Schedulers use pods/binding.
func bindingSubresource(name string, gates *PodGates) registry.Subresource {
	return registry.Subresource{
		Name: name, GVK: corev1.SchemeGroupVersion.WithKind("Binding"), Verbs: []string{"create"},
		New: func() registry.Object { return &corev1.Binding{} }, Create: gates.bind,
	}
}

// bind assigns a pod to a node. It returns a nil object and a nil error for success, which is
// answered with a Status.
func (g *PodGates) bind(ctx context.Context, a registry.Access, req registry.CreateRequest) (registry.Object, error) {
	b := req.Body.(*corev1.Binding)
	name := req.Name
	if name == "" {
		name = b.Name
	}
	if name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	if b.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	// kube-apiserver returns these errors without a Status around them, so the client gets 500 and not 422.
	if errs := validateBinding(b); len(errs) > 0 {
		return nil, plainError(errs.ToAggregate().Error())
	}
	if err := req.Admitted(ctx); err != nil {
		return nil, err
	}
	_, err := a.Update(ctx, corev1.Resource("pods"), req.Namespace, name, req.DryRun, func(obj registry.Object) error {
		return g.assign(obj.(*corev1.Pod), b, req.DryRun)
	})
	return nil, err
}

// validateBinding requires a target that can be the name of a node. It does not look up the node.
func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if kind := b.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), kind, []string{"Node", "<empty>"}))
	}
	name := field.NewPath("target", "name")
	if len(errs) > 0 { // the name may be that of anything
		return append(errs, field.NotEmpty(name, b.Target.Name)...)
	}
	return field.NotEmptyAnd(name, b.Target.Name, field.DNSSubdomain)
}

// assign sets the node of the pod. A pod is assigned only once: if two schedulers choose a node at the same
// time, the second one gets a conflict. A pod with scheduling gates (KEP-3521) is not ready for a scheduler.
func (g *PodGates) assign(p *corev1.Pod, b *corev1.Binding, dryRun bool) error {
	if err := bindingPreconditions(p, b, dryRun); err != nil {
		return err
	}
	problem := ""
	switch {
	case p.DeletionTimestamp != nil:
		problem = fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		problem = fmt.Sprintf("pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		problem = fmt.Sprintf("pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	if problem != "" {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, p.Name, fmt.Errorf("%s", problem))
	}
	p.Spec.NodeName = b.Target.Name
	mergeMap(&p.Annotations, b.Annotations)
	dropObsoleteInitAnnotations(p.Annotations)
	// The admission plug-in PodTopologyLabels puts the topology labels of the node into the Binding.
	if g.labelBound {
		mergeMap(&p.Labels, b.Labels)
	}
	// A nominated node is where the scheduler expects to place the pod. The pod has its node now.
	if g.endNomination {
		p.Status.NominatedNodeName = ""
	}
	setPodCondition(&p.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return nil
}

// bindingPreconditions returns an error unless the pod has the UID and the resourceVersion of
// the Binding, if the Binding has any. As in kube-apiserver, the key in the error of a dry run has no prefix.
func bindingPreconditions(p *corev1.Pod, b *corev1.Binding, dryRun bool) error {
	var problem string
	switch {
	case b.UID != "" && b.UID != p.UID:
		problem = fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, p.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion:
		problem = fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			b.ResourceVersion, p.ResourceVersion)
	default:
		return nil
	}
	prefix := "/registry"
	if dryRun {
		prefix = ""
	}
	return apierrors.NewConflict(corev1.Resource("pods"), p.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s/pods/%s/%s, ResourceVersion: 0, "+
			"AdditionalErrorMsg: %s", prefix, p.Namespace, p.Name, problem))
}

func mergeMap(m *map[string]string, more map[string]string) {
	if *m == nil && len(more) > 0 {
		*m = map[string]string{}
	}
	maps.Copy(*m, more)
}

// plainError returns an error that is answered with code 500 and only the message.
func plainError(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: message,
	}}
}
