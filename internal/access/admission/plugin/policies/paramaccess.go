package policies

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// ParameterAccess returns a plug-in that refuses policies and bindings whose parameters the user may not read,
// because messages and mutations of a policy can show the parameters. It cannot be switched off, like package
// escalation.
func (p *Plugins) ParameterAccess() admission.Plugin {
	return admission.Plugin{Name: "PolicyParameterAccess", Validate: p.checkAccess}
}

func (p *Plugins) checkAccess(ctx context.Context, a *admission.Attributes) error {
	if a.Resource.Group != admissionregistrationv1.GroupName || !a.Is(a.Resource, admission.Create, admission.Update) ||
		a.User == nil || a.User.InGroup(request.GroupMasters) {
		return nil
	}
	switch obj := a.Object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		old, _ := a.Old.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		return p.mayUseKind(ctx, a, obj.Spec.ParamKind, old != nil && sameKind(obj.Spec.ParamKind, old.Spec.ParamKind))
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		old, _ := a.Old.(*admissionregistrationv1.MutatingAdmissionPolicy)
		return p.mayUseKind(ctx, a, obj.Spec.ParamKind, old != nil && sameKind(obj.Spec.ParamKind, old.Spec.ParamKind))
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return p.mayUseParam(ctx, a, p.validating, obj.Spec.PolicyName, obj.Spec.ParamRef)
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return p.mayUseParam(ctx, a, p.mutating, obj.Spec.PolicyName, obj.Spec.ParamRef)
	}
	return nil
}

func sameKind(a, b *admissionregistrationv1.ParamKind) bool { return a != nil && b != nil && *a == *b }

// mayUseKind returns an error unless the user may read all objects of the kind of a policy's parameters. same
// means that the policy already had this kind, which is not checked again then.
func (p *Plugins) mayUseKind(
	ctx context.Context, a *admission.Attributes, kind *admissionregistrationv1.ParamKind, same bool,
) error {
	if kind == nil || same {
		return nil
	}
	question := request.Info{Verb: "get", Name: "*", Namespace: "*", AsksResource: true}
	if err := p.nameResource(ctx, &question, kind); err != nil {
		return err
	}
	allowed, err := p.allows(ctx, a, &question)
	if err == nil && !allowed {
		err = fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
			a.User, kind.Kind, kind.APIVersion)
	}
	return notAllowed(a, "paramKind", err)
}

// mayUseParam returns an error unless the user may read the parameters of a binding.
func (p *Plugins) mayUseParam(
	ctx context.Context, a *admission.Attributes, policies *source, name string, ref *admissionregistrationv1.ParamRef,
) error {
	if ref == nil {
		return nil
	}
	question := request.Info{Verb: "get", Name: ref.Name, Namespace: ref.Namespace, AsksResource: true}
	if ref.Name == "" {
		question.Verb = "list"
	}
	kind, found, err := p.kindOf(ctx, policies, name)
	if err == nil {
		err = p.nameResource(ctx, &question, kind)
	}
	if err != nil {
		return err
	}
	allowed, err := p.allows(ctx, a, &question)
	if err == nil && !allowed {
		err = notReadable(a, name, kind, found, &question)
	}
	return notAllowed(a, "paramRef", err)
}

// notReadable returns why a user may not use the parameters of a binding.
func notReadable(
	a *admission.Attributes, policy string, kind *admissionregistrationv1.ParamKind, found bool, question *request.Info,
) error {
	const all = `to determine minimum required permissions and user %v does not have "%v" permission for all groups, ` +
		`versions and resources`
	u := a.User
	switch {
	case !found:
		return fmt.Errorf("unable to get policy %s "+all, policy, u, question.Verb)
	case kind != nil && question.Resource == "*":
		return fmt.Errorf("unable to resolve paramKind &{%s %s} "+all, kind.APIVersion, kind.Kind, u, question.Verb)
	}
	who, what := any(u), any(question.Verb)
	if a.Resource.Resource == mutatingKind().bindings { // for these, kube-apiserver swaps the two in the message
		who, what = what, who
	}
	return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, who, what)
}

// kindOf returns the kind of the parameters of a policy, nil if it has none, and whether the policy exists.
func (p *Plugins) kindOf(
	ctx context.Context, policies *source, name string,
) (kind *admissionregistrationv1.ParamKind, found bool, err error) {
	resource := schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: policies.kind.policies}
	obj, err := p.o.Registry.Lookup(ctx, resource, "", name)
	switch policy := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return policy.Spec.ParamKind, true, err
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return policy.Spec.ParamKind, true, err
	}
	return nil, false, err
}

// nameResource sets the group, the version and the resource in the question to those of a kind. If kind is nil, all
// three are "*". If the kind is not served, only the resource is "*".
func (p *Plugins) nameResource(
	ctx context.Context, question *request.Info, kind *admissionregistrationv1.ParamKind,
) error {
	question.Group, question.Version, question.Resource = "*", "*", "*"
	if kind == nil {
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	question.Group, question.Version = gvk.Group, gvk.Version
	served, done, err := p.o.Versions.OpenKind(ctx, gvk)
	if err != nil || served == nil {
		return err
	}
	defer done()
	question.Resource = served.GVR.Resource
	return nil
}

func (p *Plugins) allows(ctx context.Context, a *admission.Attributes, question *request.Info) (bool, error) {
	decision, _, err := authz.Further(ctx, p.o.Authorizer, authz.Attributes{User: a.User, Info: question})
	return decision == authz.Allow, err
}

// notAllowed returns the refusal of a write because of a field of its spec; nil if err is nil.
func notAllowed(a *admission.Attributes, name string, err error) error {
	if err == nil {
		return nil
	}
	return kerrors.NewInvalid(a.Requested.Kind.GroupKind(), a.Name, field.ErrorList{
		field.Forbidden(field.NewPath("spec", name), err.Error()),
	})
}
