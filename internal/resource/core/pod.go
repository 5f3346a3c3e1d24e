package core

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func pods(gates PodGates, statusGates podStatusGates) *registry.Kind {
	spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
	k := &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "pods", Name: "Pod", ShortNames: []string{"po"}, Categories: []string{"all"},
			Namespaced: true,
		},
		RunBy:    []string{registry.Scheduler},
		Versions: onlyV1(func(p *corev1.Pod) { defaultPod(p, &gates) }),
		Storage:  registry.Storage{Version: "v1", Path: "pods"},
		Requests: registry.Requests{UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Finalizers: []registry.Finalizer{
			{
				Name:    "batch.kubernetes.io/job-tracking",
				Remover: "the Job controller of kube-controller-manager", When: "when the pod is counted in the status of its Job",
			},
		},
		Subresources: podSubresources(&gates),
		Selection: registry.Selection{
			Fields: []registry.Field{
				{Name: "spec.nodeName", Path: []int32{2, 10}, Index: true},
				{Name: "spec.restartPolicy", Path: []int32{2, 3}},
				{Name: "spec.schedulerName", Path: []int32{2, 19}},
				{Name: "spec.serviceAccountName", Path: []int32{2, 8}},
				{Name: "spec.hostNetwork", Path: []int32{2, 11}, Type: registry.Bool},
				{Name: "status.phase", Path: []int32{3, 1}},
				{Name: "status.podIP", Path: []int32{3, 6}},
				// kube-apiserver knows this label, but it is always empty.
				{Name: "status.podIPs", Get: func(registry.Object) string { return "" }},
				{Name: "status.nominatedNodeName", Path: []int32{3, 11}},
			},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*corev1.Pod]{
			StatusOnCreate: true, // preparePodCreate sets it
			Generation:     true,
			PrepareUpdate: func(p, old *corev1.Pod) {
				gates.keepPodResources(p, old)
				gates.drop(p, old)
			},
			PrepareStatusUpdate: func(p, old *corev1.Pod) {
				preparePodStatusUpdate(p, old)
				statusGates.Drop(&p.Status, &old.Status)
			},
			ValidateCreate: func(p *corev1.Pod) field.ErrorList { return validatePod(p, gates.rules) },
			ValidateUpdate: func(p, old *corev1.Pod) field.ErrorList {
				return validatePodUpdate(p, old, gates.rules.keeping(&old.Spec, old.Annotations))
			},
			ValidateStatusUpdate: gates.validatePodStatusUpdate,
			Warn:                 warnPod,
			WarnStatus:           func(p *corev1.Pod) []string { return warnPodStatus(&p.Status) },
			InContext: registry.InContext[*corev1.Pod]{
				PrepareCreate: func(ctx context.Context, p *corev1.Pod) { preparePodCreate(ctx, p, &gates) },
			},
		}.Untyped(),
		Deletion: registry.Deletion[*corev1.Pod]{Grace: podGrace}.Untyped(),
		Table: registry.Table[*corev1.Pod]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Ready", "string", "The aggregate readiness state of this pod for accepting traffic."),
				table.Column("Status", "string", "The aggregate status of the containers in this pod."),
				table.Column("Restarts", "string",
					"The number of times the containers in this pod have been restarted and when the last container in "+
						"this pod has restarted."),
				table.Age,
				table.Wide("IP", "string", status["podIP"]),
				table.Wide("Node", "string", spec["nodeName"]),
				table.Wide("Nominated Node", "string", status["nominatedNodeName"]),
				table.Wide("Readiness Gates", "string", spec["readinessGates"]),
			},
			Cells:      podCells,
			Conditions: finishedConditions,
		}.Untyped(),
	}
	// A version with aliases has to list all its labels.
	// spec.host is the name of spec.nodeName in old clients.
	labels := map[string]string{"spec.host": "spec.nodeName"}
	for _, f := range k.Selection.Fields {
		labels[f.Name] = f.Name
	}
	k.Versions[0].FieldAliases = labels
	return k
}

// podSubresources returns the subresources of pods. resize is of KEP-1287, ephemeralcontainers of KEP-277.
// Clients of eviction may still send the version v1beta1 of the group policy.
func podSubresources(gates *PodGates) []registry.Subresource {
	return []registry.Subresource{
		gates.podAttach(),
		bindingSubresource("binding", gates),
		{Name: "ephemeralcontainers", Verbs: declare.PartVerbs, Update: registry.UpdatePart[*corev1.Pod]{
			Prepare: gates.prepareEphemeralContainers,
			Validate: func(p, old *corev1.Pod) field.ErrorList {
				return validateEphemeralContainersUpdate(p, old, gates.rules.keeping(&old.Spec, old.Annotations))
			},
			Unconditional: true,
		}.Untyped()},
		{
			Name: "eviction", GVK: policyv1.SchemeGroupVersion.WithKind("Eviction"), Verbs: []string{"create"},
			Also: []schema.GroupVersionKind{{Group: "policy", Version: "v1beta1", Kind: "Eviction"}},
			New:  func() registry.Object { return &policyv1.Eviction{} }, Create: evict,
		},
		gates.podExec(),
		podLog(),
		gates.podPortForward(),
		podProxy(),
		{Name: "resize", Verbs: declare.PartVerbs, Update: registry.UpdatePart[*corev1.Pod]{
			Prepare: gates.prepareResize, Validate: gates.validateResize, Unconditional: true,
		}.Untyped()},
		declare.Status("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
	}
}

// defaultPod sets the defaults of a pod. Some of them do not apply to pod templates: see
// DefaultPodTemplate.
func defaultPod(p *corev1.Pod, gates *PodGates) {
	s := &p.Spec
	DefaultPodSpec(s)
	// Older versions accepted negative values. They count as 1 second, as in podGrace.
	if grace := s.TerminationGracePeriodSeconds; *grace < 0 {
		*grace = 1
	}
	declare.Pointer(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			defaultRequestsToLimits(&list[i].Resources)
			if s.HostNetwork {
				defaultHostPorts(list[i].Ports)
			}
		}
	}
	// The alternative is completePodResources, which runs after mutating admission and sees what that has
	// changed.
	if gates.podResources && !gates.latePodResources {
		defaultPodResources(s)
	}
	if gates.probeDefault {
		eachHTTPGet(s, func(a *corev1.HTTPGetAction) { declare.Pointer(&a.Protocol, corev1.HTTPProtocolHTTP1) })
	}
	// If podIP and podIPs differ, podIP is used: a client that knows only podIP has changed it.
	switch first := p.Status.PodIP; {
	case first == "" && len(p.Status.PodIPs) > 0:
		p.Status.PodIP = p.Status.PodIPs[0].IP
	case first != "" && (len(p.Status.PodIPs) == 0 || p.Status.PodIPs[0].IP != first):
		p.Status.PodIPs = []corev1.PodIP{{IP: first}}
	}
}

// defaultRequestsToLimits sets the requests that are missing to the limits.
func defaultRequestsToLimits(r *corev1.ResourceRequirements) {
	if r.Limits != nil {
		fillResources(&r.Requests, r.Limits)
	}
}

// defaultHostPorts sets host ports that are missing to the container ports, for pods in the
// host's network.
func defaultHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		declare.Value(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

// preparePodCreate replaces the status, which clients do not set on create. The order matters: the fields of
// disabled features are dropped before the resources are completed, and the QoS class depends on the complete
// resources.
func preparePodCreate(ctx context.Context, p *corev1.Pod, gates *PodGates) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message:            "Scheduling is blocked due to non-empty scheduling gates",
			LastTransitionTime: now(),
		})
	}
	gates.dropNew(p)
	mergeMatchLabelKeys(p)
	for _, text := range syncAppArmor(p) {
		request.Warn(ctx, text)
	}
	gates.completePodResources(&p.Spec)
	p.Status.QOSClass = gates.qosClass(&p.Spec)
}

// preparePodStatusUpdate keeps the owner references, which old kubelets overwrite, and the QoS
// class if the new status has none.
func preparePodStatusUpdate(p, old *corev1.Pod) {
	dropObsoleteInitAnnotations(p.Annotations)
	p.OwnerReferences = old.OwnerReferences
	s, before := &p.Status, &old.Status
	declare.Value(&s.QOSClass, before.QOSClass)
	keepObservedGenerations(s, before)
	// A client that does not know these fields must not remove them. An empty list removes one.
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = before.ResourceClaimStatuses
	}
	declare.Value(&s.ExtendedResourceClaimStatus, before.ExtendedResourceClaimStatus)
	if s.NodeAllocatableResourceClaimStatuses == nil {
		s.NodeAllocatableResourceClaimStatuses = before.NodeAllocatableResourceClaimStatuses
	}
}

// keepObservedGenerations keeps the generations that a client does not know which writes the status (KEP-5067). A type of condition
// may be there twice, so old and new ones are matched in their order.
func keepObservedGenerations(s, before *corev1.PodStatus) {
	declare.Value(&s.ObservedGeneration, before.ObservedGeneration)
	old := map[corev1.PodConditionType][]int64{}
	for _, c := range before.Conditions {
		old[c.Type] = append(old[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if list := old[c.Type]; len(list) > 0 {
			declare.Value(&c.ObservedGeneration, list[0])
			old[c.Type] = list[1:]
		}
	}
}

// podGrace returns the grace period of a deletion in seconds. It is 0 if no kubelet runs the
// pod.
// Without a kubelet, nobody would confirm that the containers have stopped, and the pod would stay forever. A
// negative grace period counts as 1 second.
func podGrace(p *corev1.Pod, options *metav1.DeleteOptions) (int64, bool) {
	var seconds int64
	switch {
	case options != nil && options.GracePeriodSeconds != nil:
		seconds = *options.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *p.Spec.TerminationGracePeriodSeconds
	}
	if p.Spec.NodeName == "" || podFinished(p) {
		seconds = 0
	}
	if seconds < 0 {
		seconds = 1
	}
	return seconds, true
}

// podFinished reports whether all containers of the pod have ended and none will be restarted.
func podFinished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// now returns the current time in whole seconds, the resolution of times in objects.
func now() metav1.Time { return metav1.NewTime(time.Now().UTC().Truncate(time.Second)) }

// setPodCondition adds or replaces a condition. It keeps the time of the last transition if
// the status of the condition does not change.
func setPodCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	c.LastTransitionTime = now()
	for i := range s.Conditions {
		if old := &s.Conditions[i]; old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// resetPod sets p to a copy of old, except for the UID and the resourceVersion, which are
// preconditions of the request.
func resetPod(p, old *corev1.Pod) {
	version := p.ResourceVersion
	uid := p.UID
	*p = *old.DeepCopy()
	p.ResourceVersion, p.UID = version, uid
}

// prepareEphemeralContainers keeps the ephemeral containers of the request, and resets everything else, labels
// and annotations too, to the old pod.
func (g *PodGates) prepareEphemeralContainers(p, old *corev1.Pod) {
	containers := p.Spec.EphemeralContainers
	resetPod(p, old)
	p.Spec.EphemeralContainers = containers
	g.drop(p, old)
	updatePodGeneration(p, old)
}

// updatePodGeneration increments the generation if a subresource has changed the spec.
func updatePodGeneration(p, old *corev1.Pod) {
	if !equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		p.Generation++
	}
}

// prepareResize keeps the changed resources of the pod and of its containers, matched by name,
// and resets everything else to the old pod.
func (g *PodGates) prepareResize(p, old *corev1.Pod) {
	wanted := p.Spec
	if len(wanted.Containers) == len(old.Spec.Containers) && len(wanted.InitContainers) == len(old.Spec.InitContainers) {
		resetPod(p, old)
		if g.resizeTogether {
			p.Spec.Resources = wanted.Resources
		}
		if g.resizeVolumes {
			p.Spec.Volumes = wanted.Volumes
		}
		p.Spec.Containers = resized(p.Spec.Containers, wanted.Containers)
		p.Spec.InitContainers = resized(p.Spec.InitContainers, wanted.InitContainers)
	} // validation refuses another number of containers
	g.keepPodResources(p, old)
	g.completePodResources(&p.Spec)
	g.drop(p, old)
	updatePodGeneration(p, old)
}

// resized returns the containers with the resources and policies of wanted, which has as many. It returns wanted if a
// container has another name: validation refuses that.
func resized(have, wanted []corev1.Container) []corev1.Container {
	for i := range have {
		if have[i].Name != wanted[i].Name {
			return wanted
		}
		have[i].Resources, have[i].ResizePolicy = wanted[i].Resources, wanted[i].ResizePolicy
	}
	return have
}
