package core

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// protectedNamespaces cannot be deleted.
// They are the same as in the admission plug-in NamespaceLifecycle of kube-apiserver; kube-node-lease is not
// among them.
var protectedNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

func namespaces() *registry.Kind {
	return &registry.Kind{
		Names:    registry.Names{Package: "core", Resource: "namespaces", Name: "Namespace", ShortNames: []string{"ns"}},
		Versions: onlyV1[corev1.Namespace](defaultNamespace),
		Storage:  registry.Storage{Version: "v1", Path: "namespaces"},
		Requests: registry.Requests{
			// Namespaces have no deletecollection.
			Verbs:               []string{"create", "delete", "get", "list", "patch", "update", "watch"},
			UnconditionalUpdate: true, ReturnDeleted: true,
		},
		Metadata: registry.Metadata{
			ValidateName: apivalidation.ValidateNamespaceName, OnUpdate: registry.MetaWhole,
		},
		Finalizers: []registry.Finalizer{
			{Name: string(corev1.FinalizerKubernetes), Remover: "the namespace controller", When: "when nothing is left in the namespace"},
		},
		Subresources: []registry.Subresource{
			{Name: "finalize", Verbs: []string{"update"}, Update: registry.UpdatePart[*corev1.Namespace]{
				Prepare:       finalizeNamespace,
				Validate:      validateNamespaceFinalize,
				Unconditional: true,
				StatusMeta:    true,
			}.Untyped(), Resets: []string{"status"}},
			declare.Status(),
		},
		Selection: registry.Selection{
			Fields:     []registry.Field{{Name: "status.phase", Path: []int32{3, 1}}},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*corev1.Namespace]{
			PrepareCreate: prepareNamespaceCreate,
			// Only the subresource finalize changes the finalizers of the spec.
			PrepareUpdate: func(n, old *corev1.Namespace) { n.Spec.Finalizers = old.Spec.Finalizers },
			ValidateCreate: func(n *corev1.Namespace) field.ErrorList {
				var errs field.ErrorList
				for _, f := range n.Spec.Finalizers {
					errs = append(errs, validateFinalizerName(string(f), field.NewPath("spec", "finalizers"))...)
				}
				return errs
			},
			ValidateStatusUpdate: validateNamespacePhase,
		}.Untyped(),
		Deletion: registry.Deletion[*corev1.Namespace]{
			Started:    func(n *corev1.Namespace) { n.Status.Phase = corev1.NamespaceTerminating },
			Finalizing: func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
			Before:     refuseProtectedNamespace,
		}.Untyped(),
		Table: registry.Table[*corev1.Namespace]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Status", "string", "The status of the namespace"),
				table.Age,
			},
			Cells: func(n *corev1.Namespace) []any {
				return []any{n.Name, string(n.Status.Phase), table.AgeOf(n.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// prepareNamespaceCreate adds the finalizer kubernetes, without which a deletion would remove the namespace and
// leave its objects behind.
func prepareNamespaceCreate(n *corev1.Namespace) {
	labelNamespace(n)
	n.Status.Phase = corev1.NamespaceActive
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// refuseProtectedNamespace returns an error if the namespace cannot be deleted.
func refuseProtectedNamespace(n *corev1.Namespace) error {
	if !slices.Contains(protectedNamespaces, n.Name) {
		return nil
	}
	return apierrors.NewForbidden(corev1.Resource("namespaces"), n.Name, errors.New("this namespace may not be deleted"))
}

func defaultNamespace(n *corev1.Namespace) {
	labelNamespace(n)
	declare.Value(&n.Status.Phase, corev1.NamespaceActive)
}

// labelNamespace sets the label with the namespace's own name, which label selectors use.
// The label is kubernetes.io/metadata.name (KEP-2161). It is set by default and not only on create, so
// namespaces that are older than the label have it too, and a client can neither change nor remove it.
func labelNamespace(n *corev1.Namespace) {
	if n.Name == "" {
		return
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

// finalizeNamespace lets a client change the finalizers of the spec and the metadata, as kube-apiserver does.
func finalizeNamespace(n, old *corev1.Namespace) { n.Status = *old.Status.DeepCopy() }

// validateNamespaceFinalize validates the names of finalizers. Unlike on create, errors have an index, as in
// kube-apiserver.
func validateNamespaceFinalize(n, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, f := range n.Spec.Finalizers {
		errs = append(errs, validateFinalizerName(string(f), field.NewPath("spec", "finalizers").Index(i))...)
	}
	return errs
}

// validateFinalizerName accepts example.com/name and the finalizers that Kubernetes defines without a domain:
// kubernetes, orphan and foregroundDeletion.
func validateFinalizerName(name string, path *field.Path) field.ErrorList {
	errs := field.LabelKey(path, name)
	return append(errs, field.InvalidIf(!strings.Contains(name, "/") && name != string(corev1.FinalizerKubernetes) &&
		name != metav1.FinalizerOrphanDependents && name != metav1.FinalizerDeleteDependents, path, name,
		"name is neither a standard finalizer name nor is it fully qualified")...)
}

// validateNamespacePhase requires that the phase is Terminating exactly if the namespace is
// being deleted.
func validateNamespacePhase(n, _ *corev1.Namespace) field.ErrorList {
	// kube-apiserver writes this path with a capital P.
	path := field.NewPath("status", "Phase")
	if n.DeletionTimestamp.IsZero() {
		return field.InvalidIf(n.Status.Phase != corev1.NamespaceActive, path, n.Status.Phase,
			"may only be 'Active' if `deletionTimestamp` is empty")
	}
	return field.InvalidIf(n.Status.Phase != corev1.NamespaceTerminating, path, n.Status.Phase,
		"may only be 'Terminating' if `deletionTimestamp` is not empty")
}
