package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const (
	podUpdateForbidden = "pod updates may not change fields other than " +
		"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
		"`spec.tolerations` (only additions to existing tolerations)," +
		"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
	noAddRemove = "pod updates may not add or remove containers"
)

// validatePod validates a new pod. Ephemeral containers can only be added to a pod that exists, by their
// subresource. A pod with scheduling gates must not have a node, because it would run before its gates are
// removed (KEP-3521).
func validatePod(p *corev1.Pod, rules podRules) field.ErrorList {
	path := field.NewPath("spec")
	defer path.Free()
	errs := validateWholePod(p, rules, path)
	errs = append(errs, validateRequiredNodeValues(&p.Spec, path)...)
	errs = append(errs, field.ForbiddenIf(len(p.Spec.EphemeralContainers) > 0, path.Child("ephemeralContainers"),
		"cannot be set on create")...)
	errs = append(errs, field.ForbiddenIf(p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0,
		path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")...)
	errs = append(errs, validateSeccompMatch(p.Annotations, &p.Spec, path)...)
	errs = append(errs, validateAppArmorMatch(p.Annotations, &p.Spec, path)...)
	return append(errs, validateResponders(p.Spec.EvictionResponders, nil, path.Child("evictionResponders"))...)
}

// validateWholePod checks the rules for annotations and spec that hold on create and on update. path is the path of the spec.
func validateWholePod(p *corev1.Pod, rules podRules, path *field.Path) field.ErrorList {
	errs := validatePodAnnotations(p.Annotations, &p.Spec, rules, field.NewPath("metadata", "annotations"))
	rules.noClaims = isMirrorPod(p)
	errs = append(errs, validatePodSpec(&p.Spec, rules, p.Name, true, path)...)
	return append(errs, validateTokenSources(&p.Spec, path.Child("volumes"))...)
}

// validateTokenSources forbids tokens of a service account in volumes of a pod that has none.
// The kubelet requests such a token from the subresource token of the service account.
func validateTokenSources(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s.ServiceAccountName != "" {
		return nil
	}
	var errs field.ErrorList
	for i := range s.Volumes {
		if s.Volumes[i].Projected == nil {
			continue
		}
		for j, source := range s.Volumes[i].Projected.Sources {
			if source.ServiceAccountToken != nil {
				at := path.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken")
				errs = append(errs, field.Forbidden(at, "must not be specified when serviceAccountName is not set"))
			}
		}
	}
	return errs
}

// validatePodUpdate validates an update of a pod.
func validatePodUpdate(p, old *corev1.Pod, rules podRules) field.ErrorList {
	path := field.NewPath("spec")
	defer path.Free()
	whole := validateWholePod(p, rules, path)
	if len(validateRequiredNodeValues(&old.Spec, path)) == 0 { // otherwise the pod is older than the rule
		whole = append(whole, validateRequiredNodeValues(&p.Spec, path)...)
	}
	whole = append(whole, validateImmutableAnnotations(p, old)...)
	whole = append(whole, validatePodChanges(p, old, path)...)
	return append(whole, validateResponders(p.Spec.EvictionResponders, old.Spec.EvictionResponders,
		path.Child("evictionResponders"))...)
}

// validatePodChanges returns errors for changes of fields that cannot be updated. It sets the
// fields that may change to their old values in a copy of the spec, and then requires that the
// copy equals the old spec.
// The lists of containers are compared by position. So it returns early if their lengths differ.
func validatePodChanges(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return field.ErrorList{field.Forbidden(path.Child("containers"), noAddRemove)}
	}
	errs := validateImages(p.Spec.Containers, path.Child("containers"))
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(path.Child("initContainers"), noAddRemove))
	}
	errs = append(errs, validateImages(p.Spec.InitContainers, path.Child("initContainers"))...)
	deadline, ends := validateDeadlineUpdate(p, old, path.Child("activeDeadlineSeconds"))
	if errs = append(errs, deadline...); ends {
		return errs
	}
	errs = append(errs, validateTolerationsAdded(p.Spec.Tolerations, old.Spec.Tolerations, path.Child("tolerations"))...)
	errs = append(errs,
		validateGatesRemoved(p.Spec.SchedulingGates, old.Spec.SchedulingGates, path.Child("schedulingGates"))...)
	// The permitted changes are listed in podUpdateForbidden. Not listed are the removal of scheduling gates and
	// what validateGatedPodScheduling allows.
	same := p.Spec.DeepCopy()
	for i := range same.Containers {
		same.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range same.InitContainers {
		same.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	same.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	same.Tolerations = old.Spec.Tolerations
	same.SchedulingGates = old.Spec.SchedulingGates
	if was, is := old.Spec.TerminationGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds; was != nil && *was < 0 &&
		is != nil && *is == 1 {
		same.TerminationGracePeriodSeconds = was
	}
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, validateGatedPodScheduling(same, &old.Spec, path)...)
	}
	if !equality.Semantic.DeepEqual(same, &old.Spec) {
		errs = append(errs,
			field.Forbidden(path, podUpdateForbidden+"\n"+declare.Diff(&old.Spec, same)))
	}
	return errs
}

// validateImages validates the images of containers once more than the validation of the pod, as kube-apiserver does.
func validateImages(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		image, at := containers[i].Image, path.Index(i).Child("image")
		errs = append(errs, field.NotEmpty(at, image)...)
		errs = append(errs, field.InvalidIf(strings.TrimSpace(image) != image, at, image,
			"must not have leading or trailing whitespace")...)
	}
	return errs
}

// validateDeadlineUpdate forbids to remove a deadline, or to make it later. ends means that the other changes are not
// validated, as in kube-apiserver. It is true for a deadline that is later than before or not valid.
// A pod may be told to end earlier, not to live longer. For example, 100 may become 50, nil may become 100, and
// 100 may not become nil.
func validateDeadlineUpdate(p, old *corev1.Pod, path *field.Path) (errs field.ErrorList, ends bool) {
	switch is, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds; {
	case is == nil && was == nil:
		return nil, false
	case is == nil:
		return field.ErrorList{field.Invalid(path, is, "must not update from a positive integer to nil value")}, false
	case *is < 0 || *is > math.MaxInt32:
		return field.InRange(path, *is, 0, math.MaxInt32), true
	case was != nil && *is > *was:
		return field.ErrorList{field.Invalid(path, *is, "must be less than or equal to previous value")}, true
	}
	return nil, false
}

// validateTolerationsAdded requires that the old tolerations are still there, apart from their
// tolerationSeconds. New ones may be added: they only give a pod more nodes, or more time on a node.
func validateTolerationsAdded(is, was []corev1.Toleration, path *field.Path) field.ErrorList {
	for _, t := range was {
		kept := false
		for _, n := range is {
			n.TolerationSeconds = t.TolerationSeconds
			kept = kept || equality.Semantic.DeepEqual(n, t)
		}
		if !kept {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

// validateGatesRemoved forbids new scheduling gates: the scheduler may be working on the pod as soon as it has
// none.
func validateGatesRemoved(is, was []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	had := map[string]bool{}
	for _, g := range was {
		had[g.Name] = true
	}
	last := map[string]int{} // a name is reported once, at its last place
	for i, g := range is {
		last[g.Name] = i
	}
	var errs field.ErrorList
	for i, g := range is {
		if !had[g.Name] && last[g.Name] == i {
			errs = append(errs, field.Forbidden(path.Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name)))
		}
	}
	return errs
}

// validateGatedPodScheduling allows a pod with scheduling gates to extend its node selector
// and its required node affinity. It resets both in spec to their old values.
// A controller that holds the gate, such as a queue for jobs, may restrict the nodes in this way before the pod
// is scheduled (KEP-3838). It must not widen the choice that the author of the pod made.
func validateGatedPodScheduling(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for k, v := range old.NodeSelector {
		if now, ok := spec.NodeSelector[k]; !ok || now != v {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), spec.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	spec.NodeSelector = old.NodeSelector
	var is, was *corev1.NodeAffinity
	if spec.Affinity != nil {
		is = spec.Affinity.NodeAffinity
	}
	if old.Affinity != nil {
		was = old.Affinity.NodeAffinity
	}
	if equality.Semantic.DeepEqual(is, was) {
		return errs
	}
	errs = append(errs, validateGatedNodeAffinity(is, was, path.Child("affinity", "nodeAffinity"))...)
	switch a := spec.Affinity; {
	case a == nil: // was is not nil then; other parts of the affinity may not go with it
		spec.Affinity = &corev1.Affinity{NodeAffinity: was}
	case old.Affinity == nil && a.PodAffinity == nil && a.PodAntiAffinity == nil:
		spec.Affinity = nil
	default:
		a.NodeAffinity = was
	}
	return errs
}

// validateGatedNodeAffinity allows additional requirements in the terms of a required node affinity, because a
// node must meet all requirements of a term. Another term would widen the choice: a node must match only one of
// them. An empty term matches no node, so a requirement in it would widen the choice too. Without required
// terms before, all changes are allowed.
func validateGatedNodeAffinity(is, was *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	if was == nil || was.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	path = path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	const message = "only additions are allowed (no mutations or deletions)"
	old := was.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if is == nil || is.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		len(is.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != len(old) {
		return field.ErrorList{
			field.Invalid(path, declare.Internal(requiredTerms(is)),
				"no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	var errs field.ErrorList
	for i, t := range is.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		switch before := old[i]; {
		case len(before.MatchExpressions) == 0 && len(before.MatchFields) == 0 &&
			(len(t.MatchExpressions) > 0 || len(t.MatchFields) > 0):
			errs = append(errs, field.Invalid(path.Index(i), declare.Internal(t), message))
		case !hasPrefix(t.MatchExpressions, before.MatchExpressions) || !hasPrefix(t.MatchFields, before.MatchFields):
			errs = append(errs, field.Invalid(path.Index(i), declare.Internal(t), message))
		}
	}
	return errs
}

func requiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// hasPrefix reports whether list begins with the requirements of prefix. New requirements may only follow the
// old ones.
func hasPrefix(list, prefix []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(prefix) && equality.Semantic.DeepEqual(list[:len(prefix)], prefix)
}

// validatePodStatusUpdate validates a write of the status, mostly by a kubelet. The QoS class is fixed when the
// pod is created. Annotations are validated because this write may change them too.
func (g *PodGates) validatePodStatusUpdate(p, old *corev1.Pod) field.ErrorList {
	status, rules := field.NewPath("status"), g.rules.keeping(&old.Spec, old.Annotations)
	errs := validateImmutableAnnotations(p, old)
	errs = append(errs, validatePodAnnotations(p.Annotations, &p.Spec, rules, field.NewPath("metadata", "annotations"))...)
	errs = append(errs,
		apivalidation.ValidateImmutableField(p.Status.QOSClass, old.Status.QOSClass, field.NewPath("status", "qosClass").K8s())...)
	errs = append(errs, g.validatePodStatus(p, old)...)
	if restarts := restartsOf(&old.Spec, rules); restarts != nil {
		errs = append(errs, validateTerminatedContainers(p.Status.ContainerStatuses, old.Status.ContainerStatuses,
			status.Child("containerStatuses"), func(name string, code int32) bool { return restarts(old.Spec.Containers, name, code) })...)
		errs = append(errs, validateTerminatedContainers(p.Status.InitContainerStatuses, old.Status.InitContainerStatuses,
			status.Child("initContainerStatuses"),
			func(name string, code int32) bool { return restarts(old.Spec.InitContainers, name, code) })...)
	}
	// An ephemeral container never runs again.
	return append(errs, validateTerminatedContainers(p.Status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses,
		status.Child("ephemeralContainerStatuses"), func(string, int32) bool { return false })...)
}

// validateTerminatedContainers requires that a container that will not be restarted stays terminated. The index in an
// error is that of the old list.
func validateTerminatedContainers(
	is, was []corev1.ContainerStatus, path *field.Path, restarts func(name string, exitCode int32) bool,
) (errs field.ErrorList) {
	for i := range was {
		ended, name := was[i].State.Terminated, was[i].Name
		runs := slices.ContainsFunc(is, func(s corev1.ContainerStatus) bool { return s.Name == name && s.State.Terminated == nil })
		errs = append(errs, field.ForbiddenIf(ended != nil && runs && !restarts(name, ended.ExitCode), path.Index(i).Child("state"),
			"may not be transitioned to non-terminated state")...)
	}
	return errs
}

// restartsOf returns a function that reports whether a container of a pod runs again after it has ended with an exit code. It is
// nil if every container may run again.
func restartsOf(pod *corev1.PodSpec, rules podRules) func(in []corev1.Container, name string, exitCode int32) bool {
	byPod := func(code int32) bool {
		return pod.RestartPolicy != corev1.RestartPolicyNever && (pod.RestartPolicy != corev1.RestartPolicyOnFailure || code != 0)
	}
	switch {
	case !rules.noRestartRules && (rules.noRestartAll || !restartsAll(pod)):
		return func(in []corev1.Container, name string, code int32) bool {
			c := containerNamed(in, name)
			return c != nil && rules.restarts(c, byPod, code)
		}
	case !rules.noRestartRules, pod.RestartPolicy == corev1.RestartPolicyAlways:
		return nil
	}
	// Before containers had policies of their own (KEP-5307), only sidecars differed from the pod.
	return func(in []corev1.Container, name string, code int32) bool {
		c := containerNamed(in, name)
		return byPod(code) || c != nil && isSidecar(c)
	}
}

// restartsAll reports whether the exit of some container restarts all containers of the pod.
func restartsAll(pod *corev1.PodSpec) (all bool) {
	eachContainer(pod, func(c *corev1.Container) {
		all = all || slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
	return all
}

// restarts reports whether a container runs again: by the first of its rules that matches, or by its own policy, or by that of its
// pod.
func (r podRules) restarts(c *corev1.Container, byPod func(exitCode int32) bool, code int32) bool {
	if c.RestartPolicy == nil {
		return byPod(code)
	}
	for _, rule := range c.RestartPolicyRules {
		e := rule.ExitCodes
		if e == nil || slices.Contains(e.Values, code) != (e.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			continue
		}
		if rule.Action == corev1.ContainerRestartRuleActionRestart || !r.noRestartAll {
			return true
		}
		break
	}
	switch *c.RestartPolicy {
	case corev1.ContainerRestartPolicyAlways:
		return true
	case corev1.ContainerRestartPolicyOnFailure:
		return code != 0
	}
	return false
}

// validateResize validates a write of the subresource resize (KEP-1287): only CPU and memory may change, and
// they may not be removed. With the gate InPlacePodVerticalScalingMemoryBackedVolumes, sizes of volumes in memory
// may change too. The QoS class must stay the same. A static pod takes its spec from a file of its node, so the
// API cannot resize it. The copy same gets the old CPU, memory and volumes, and then has to equal the old spec.
func (g *PodGates) validateResize(p, before *corev1.Pod) field.ErrorList {
	if isMirrorPod(before) {
		return field.ErrorList{staticPodForbidden("static pods cannot be resized")}
	}
	if os := before.Spec.OS; os != nil && os.Name == corev1.Windows {
		return field.ErrorList{staticPodForbidden("windows pods cannot be resized")}
	}
	path := field.NewPath("spec")
	errs := validateWholePod(p, g.rules.keeping(&before.Spec, before.Annotations), path)
	errs = append(errs, field.ForbiddenIf(!nodeCanResize(&before.Status), path,
		"Pod running on node without support for resize")...)
	// For example, a Guaranteed pod must change a request together with its limit.
	errs = append(errs, field.InvalidIf(g.qosClass(&p.Spec) != QOSClass(before), path, p.Status.QOSClass,
		"Pod QOS Class may not change as a result of resizing")...)
	same := p.Spec.DeepCopy()
	if setsResources(before.Spec.Resources) || setsResources(p.Spec.Resources) {
		if !g.resizeTogether {
			return append(errs, staticPodForbidden("resize of pods with pod-level resources is forbidden when "+
				"InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"))
		}
		errs = append(errs, validatePodResize(same, &before.Spec, path)...)
	}
	others := append(validateSameContainers(p.Spec.Containers, before.Spec.Containers, "containers", path),
		validateSameContainers(p.Spec.InitContainers, before.Spec.InitContainers, "initContainers", path)...)
	// The loops below compare containers by position.
	if len(others) > 0 {
		return append(errs, others...)
	}
	for _, part := range []struct {
		name     string
		is, was  []corev1.Container
		restored []corev1.Container
	}{
		{"containers", p.Spec.Containers, before.Spec.Containers, same.Containers},
		{"initContainers", p.Spec.InitContainers, before.Spec.InitContainers, same.InitContainers},
	} {
		for i := range part.is {
			if part.name == "initContainers" && !g.resizeInit && !isSidecar(&part.was[i]) {
				continue
			}
			at := path.Child(part.name).Index(i).Child("resources")
			errs = append(errs, validateNotRemoved(part.is[i].Resources.Limits, part.was[i].Resources.Limits,
				at.Child("limits"), "resource limits cannot be removed")...)
			errs = append(errs, validateNotRemoved(part.is[i].Resources.Requests, part.was[i].Resources.Requests,
				at.Child("requests"), "resource requests cannot be removed")...)
			restoreCPUAndMemory(&part.restored[i].Resources, &part.was[i].Resources)
		}
	}
	errs = append(errs, g.validateOtherwiseSame(same, &p.Spec, &before.Spec, path)...)
	if g.resizeVolumes {
		errs = append(errs, validateVolumesResize(p.Spec.Volumes, before.Spec.Volumes, path.Child("volumes"))...)
		same.Volumes = before.Spec.Volumes
	} else {
		errs = append(errs, field.ForbiddenIf(!equality.Semantic.DeepEqual(p.Spec.Volumes, before.Spec.Volumes),
			path.Child("volumes"), "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes "+
				"feature gate is disabled")...)
	}
	return append(errs, field.ForbiddenIf(len(errs) == 0 && !equality.Semantic.DeepEqual(same, &before.Spec), path,
		onlyCPUAndMemory)...)
}

// nodeCanResize reports whether the node of a pod can resize it, as far as the status shows: the kubelet reports the
// resources of running containers.
// Without a running container, nothing is known, and the answer is true.
func nodeCanResize(s *corev1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		if s.ContainerStatuses[i].State.Running != nil {
			return s.ContainerStatuses[i].Resources != nil
		}
	}
	return true
}

func setsResources(r *corev1.ResourceRequirements) bool {
	return r != nil && len(r.Requests)+len(r.Limits) > 0
}

// validatePodResize allows changes of CPU and memory of the pod as a whole, but not their removal. It resets them in spec
// to their old values.
func validatePodResize(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	at := path.Child("resources")
	var errs field.ErrorList
	switch r := spec.Resources; {
	case old.Resources != nil && r == nil:
		return field.ErrorList{field.Forbidden(at, "pod-level resources cannot be removed")}
	case old.Resources != nil:
		errs = append(validateNotRemoved(r.Requests, old.Resources.Requests, at.Child("requests"),
			"pod-level resource requests cannot be removed"), validateNotRemoved(r.Limits, old.Resources.Limits,
			at.Child("limits"), "pod-level resource limits cannot be removed")...)
		restoreCPUAndMemory(r, old.Resources)
	default:
		restoreCPUAndMemory(r, &corev1.ResourceRequirements{})
		if len(r.Requests)+len(r.Limits)+len(r.Claims) == 0 {
			spec.Resources = nil
		}
	}
	return append(errs, field.ForbiddenIf(!equality.Semantic.DeepEqual(spec.Resources, old.Resources), path,
		"only cpu and memory resources are mutable at pod-level")...)
}

const onlyCPUAndMemory = "only cpu and memory resources are mutable"

// validateOtherwiseSame requires that a resize has changed nothing else of a container. spec has the old CPU and memory,
// is the new.
func (g *PodGates) validateOtherwiseSame(spec, is, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.Containers {
		errs = append(errs, field.ForbiddenIf(!equality.Semantic.DeepEqual(spec.Containers[i], old.Containers[i]), path,
			onlyCPUAndMemory)...)
	}
	for i := range spec.InitContainers {
		c, at := &spec.InitContainers[i], path.Child("initContainers").Index(i)
		if !g.resizeInit && !isSidecar(c) {
			errs = append(errs, field.ForbiddenIf(!equality.Semantic.DeepEqual(is.InitContainers[i], old.InitContainers[i]), path,
				"resources for non-sidecar init containers are immutable")...)
			continue
		}
		errs = append(errs, field.ForbiddenIf(!isSidecar(c) && restartsToResize(c.ResizePolicy), at,
			"non-sidecar init containers with a resize policy of RestartContainer cannot be resized")...)
		errs = append(errs, field.ForbiddenIf(!equality.Semantic.DeepEqual(*c, old.InitContainers[i]), at,
			"only cpu and memory resources for init or sidecar containers are mutable")...)
	}
	return errs
}

func restartsToResize(policies []corev1.ContainerResizePolicy) bool {
	return slices.ContainsFunc(policies, func(p corev1.ContainerResizePolicy) bool {
		return p.RestartPolicy == corev1.RestartContainer
	})
}

// validateSameContainers requires the same containers in the same order.
func validateSameContainers(is, was []corev1.Container, name string, path *field.Path) field.ErrorList {
	path = path.Child(name)
	if len(is) != len(was) {
		return field.ErrorList{field.Forbidden(path, name+" may not be added or removed on resize")}
	}
	var errs field.ErrorList
	for i := range is {
		if is[i].Name != was[i].Name {
			errs = append(errs,
				field.Forbidden(path.Index(i).Child("name"), name+" may not be renamed or reordered on resize"))
		}
	}
	return errs
}

func validateNotRemoved(is, was corev1.ResourceList, path *field.Path, message string) field.ErrorList {
	for name := range was {
		if _, ok := is[name]; !ok {
			return field.ErrorList{field.Forbidden(path, message)}
		}
	}
	return nil
}

// validateVolumesResize allows a resize to change the size of volumes in memory, but neither to set nor to remove it.
// The size limit of a volume in memory counts towards the memory of the pod, so it is resized with it.
func validateVolumesResize(is, was []corev1.Volume, path *field.Path) field.ErrorList {
	if len(is) != len(was) {
		return field.ErrorList{field.Forbidden(path, "volumes may not be added or removed on resize")}
	}
	var errs field.ErrorList
	for i := range is {
		at := path.Index(i)
		if is[i].Name != was[i].Name {
			errs = append(errs, field.Forbidden(at.Child("name"), "volumes may not be renamed or reordered on resize"))
			continue
		}
		same := is[i].DeepCopy()
		if same.EmptyDir == nil || was[i].EmptyDir == nil {
			errs = append(errs, field.ForbiddenIf(!equality.Semantic.DeepEqual(same, &was[i]), at, onlySizesInMemory)...)
			continue
		}
		size, before := same.EmptyDir.SizeLimit, was[i].EmptyDir.SizeLimit
		same.EmptyDir.SizeLimit = before
		switch at := at.Child("emptyDir", "sizeLimit"); {
		case !equality.Semantic.DeepEqual(same, &was[i]):
			errs = append(errs, field.Forbidden(path.Index(i), onlySizesInMemory))
		case (size == nil || size.IsZero()) != (before == nil || before.IsZero()):
			errs = append(errs, field.Forbidden(at, "adding or removing sizeLimit on an existing volume is not allowed"))
		case size != nil && before != nil && size.Cmp(*before) != 0 && same.EmptyDir.Medium != corev1.StorageMediumMemory:
			errs = append(errs, field.Forbidden(at, "sizeLimit is only mutable for memory-backed emptyDir volumes"))
		}
	}
	return errs
}

const onlySizesInMemory = "only sizeLimit of memory-backed emptyDir volumes is mutable on resize"

// restoreCPUAndMemory resets the resources that a resize may change to their old values.
func restoreCPUAndMemory(r, old *corev1.ResourceRequirements) {
	restore := func(list *corev1.ResourceList, old corev1.ResourceList) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			q, ok := old[name]
			switch {
			case ok && *list == nil:
				*list = corev1.ResourceList{name: q}
			case ok:
				(*list)[name] = q
			default:
				delete(*list, name)
			}
		}
	}
	restore(&r.Limits, old.Limits)
	restore(&r.Requests, old.Requests)
}
