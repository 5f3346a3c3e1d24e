package core

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func nodes(gates features.Gates) *registry.Kind {
	// disabled is removed from a new node. Updates may keep such fields, but not add them: inSpec for an update of the node,
	// inStatus for an update of its status.
	disabled := declare.DisabledOf(gates, declare.Part(features.NodeDeclaredFeatures,
		func(n *corev1.Node) bool { return n.Status.DeclaredFeatures != nil },
		func(n *corev1.Node) { n.Status.DeclaredFeatures = nil }), inNodeSpec())
	inSpec := declare.DisabledOf(gates, inNodeSpec())
	inStatus := declare.DisabledOf(gates, declare.Part(features.KubeletInUserNamespace,
		func(n *corev1.Node) bool { return n.Status.NodeInfo.RunningInUserNamespace != nil },
		func(n *corev1.Node) { n.Status.NodeInfo.RunningInUserNamespace = nil }))
	info, status := corev1.NodeSystemInfo{}.SwaggerDoc(), corev1.NodeStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names:    registry.Names{Package: "core", Resource: "nodes", Name: "Node", ShortNames: []string{"no"}},
		Versions: onlyV1[corev1.Node](defaultNode),
		// Minion is the old name of a node. kube-apiserver still uses it in the keys in etcd.
		Storage:  registry.Storage{Version: "v1", Path: "minions"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Subresources: []registry.Subresource{
			nodeProxy(),
			{Name: "status", Verbs: declare.PartVerbs, Resets: []string{"spec"}, Update: registry.UpdatePart[*corev1.Node]{
				Prepare: func(n, old *corev1.Node) {
					prepareNodeStatus(n, old)
					inStatus.Drop(n, old)
				},
				Validate:      validateNodeStatusUpdate,
				Unconditional: true,
			}.Untyped()},
		},
		Selection: registry.Selection{
			Fields:     []registry.Field{{Name: "spec.unschedulable", Path: []int32{2, 4}, Type: registry.Bool}},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*corev1.Node]{
			// A kubelet that registers its node sends the status too.
			StatusOnCreate: true,
			PrepareCreate: func(n *corev1.Node) {
				// Dynamic configuration of kubelets no longer exists.
				n.Spec.ConfigSource, n.Status.Config = nil, nil
				disabled.DropNew(n)
			},
			PrepareUpdate: func(n, old *corev1.Node) {
				if old.Spec.ConfigSource == nil {
					n.Spec.ConfigSource = nil
				}
				inSpec.Drop(n, old)
			},
			// Like kube-apiserver, this checks most fields twice on update.
			Validate:       NewAddressRules(gates).validateNode,
			ValidateCreate: func(n *corev1.Node) field.ErrorList { return validatePreemptionPolicy(n, &corev1.Node{}) },
			ValidateUpdate: func(n, old *corev1.Node) field.ErrorList {
				return append(validateNodeStatusUpdate(n, old), validatePreemptionPolicy(n, old)...)
			},
			Warn: warnNode,
		}.Untyped(),
		Table: registry.Table[*corev1.Node]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Status", "string", "The status of the node"),
				table.Column("Roles", "string", "The roles of the node"),
				table.Age,
				table.Column("Version", "string", info["kubeletVersion"]),
				table.Wide("Internal-IP", "string", status["addresses"]),
				table.Wide("External-IP", "string", status["addresses"]),
				table.Wide("OS-Image", "string", info["osImage"]),
				table.Wide("Kernel-Version", "string", info["kernelVersion"]),
				table.Wide("Container-Runtime", "string", info["containerRuntimeVersion"]),
			},
			Cells: nodeCells,
		}.Untyped(),
	}
}

// inNodeSpec returns the part of a node's spec that has a gate.
func inNodeSpec() declare.Gated[*corev1.Node] {
	return declare.Part(features.InPlacePodVerticalScalingSchedulerPreemption,
		func(n *corev1.Node) bool { return n.Spec.PodPreemptionPolicy != nil },
		func(n *corev1.Node) { n.Spec.PodPreemptionPolicy = nil })
}

// prepareNodeStatus resets all fields except the status to their old values. status.config can
// only be removed, because dynamic kubelet configuration no longer exists.
func prepareNodeStatus(n, old *corev1.Node) {
	n.Spec = old.Spec
	if old.Status.Config == nil {
		n.Status.Config = nil
	}
}

// defaultNode keeps podCIDR and podCIDRs in agreement. If they differ, podCIDR is used: a client that knows
// only podCIDR has changed it. A node that reports no allocatable resources offers its whole capacity.
func defaultNode(n *corev1.Node) {
	switch first := n.Spec.PodCIDR; {
	case first == "" && len(n.Spec.PodCIDRs) > 0:
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	case first != "" && (len(n.Spec.PodCIDRs) == 0 || n.Spec.PodCIDRs[0] != first):
		n.Spec.PodCIDRs = []string{first}
	}
	declare.RoundUp(n.Status.Capacity)
	declare.RoundUp(n.Status.Allocatable)
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

func warnNode(n, _ *corev1.Node) []string {
	var warnings []string
	if n.Spec.ConfigSource != nil {
		warnings = append(warnings, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	return append(warnings, field.WarnEach(field.NewPath("spec", "podCIDRs"), n.Spec.PodCIDRs,
		validation.GetWarningsForCIDR)...)
}

func nodeCells(n *corev1.Node) []any {
	info := n.Status.NodeInfo
	kernel := cmp.Or(info.KernelVersion, table.Unknown)
	if info.KernelVersion != "" && info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, nodeStatus(n), nodeRoles(n), table.AgeOf(n.CreationTimestamp), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		cmp.Or(info.OSImage, table.Unknown), kernel, cmp.Or(info.ContainerRuntimeVersion, table.Unknown),
	}
}

// nodeStatus returns Ready, NotReady or Unknown, for a node without the condition Ready. A node that kubectl
// cordon has marked also has SchedulingDisabled.
func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles from labels: node-role.kubernetes.io/ROLE with any value, or
// kubernetes.io/role=ROLE. The labels are a convention of installers such as kubeadm.
func nodeRoles(n *corev1.Node) string {
	const prefix, single = "node-role.kubernetes.io/", "kubernetes.io/role"
	var roles []string
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, prefix); ok && role != "" {
			roles = append(roles, role)
		} else if label == single && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return table.OrNone(strings.Join(slices.Compact(roles), ","))
}

func nodeAddress(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return table.None
}
