package core

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateNode validates a node on create and on update. As in kube-apiserver, the errors about taints and
// about swap have paths below metadata.
func (r AddressRules) validateNode(n *corev1.Node) field.ErrorList {
	meta, status := field.NewPath("metadata"), field.NewPath("status")
	errs := validateNodeAnnotations(n.Annotations, meta.Child("annotations"))
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)
	errs = append(errs, validateNodeResources(n, status)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(meta.Child("nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures, status.Child("declaredFeatures"))...)
	return append(errs, r.validatePodCIDRs(n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs"))...)
}

func (r AddressRules) validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	errs := field.EachValue(path, cidrs,
		func(at *field.Path, cidr string) field.ErrorList { return r.ValidateCIDR(at, cidr, nil) })
	if len(cidrs) > 1 {
		dual, err := netutils.IsDualStackCIDRStrings(cidrs)
		if err != nil {
			errs = append(errs, field.InternalError(path, internalCIDRError{err}))
		}
		errs = append(errs, field.InvalidIf(!dual || len(cidrs) > 2, path, cidrs,
			"may specify no more than one CIDR for each IP family")...)
	}
	return errs
}

// Annotations that are older than the fields that replaced them.
const (
	taintsAnnotation    = "scheduler.alpha.kubernetes.io/taints"
	avoidPodsAnnotation = corev1.PreferAvoidPodsAnnotationKey
)

func validateNodeAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if text := annotations[taintsAnnotation]; text != "" {
		if taints, err := taintsOf(text); err != nil {
			errs = append(errs, field.Invalid(path, taintsAnnotation, err.Error()))
		} else {
			errs = append(errs, validateTaints(taints, path.Child(taintsAnnotation))...)
		}
	}
	return append(errs, field.IfSet(path, annotations[avoidPodsAnnotation], validateAvoidPods)...)
}

// taintsOf decodes the value of taintsAnnotation. The messages of its errors have the names of kube-apiserver's Go types and
// of their fields.
func taintsOf(text string) ([]corev1.Taint, error) {
	type TaintEffect string
	type Taint struct {
		Key, Value string
		Effect     TaintEffect
		TimeAdded  *metav1.Time
	}
	var list []Taint
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	out := make([]corev1.Taint, len(list))
	for i, t := range list {
		out[i] = corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TimeAdded: t.TimeAdded}
	}
	return out, nil
}

// validateAvoidPods requires that each entry names the controller of the pods to avoid: an owner with
// controller: true.
func validateAvoidPods(path *field.Path, text string) field.ErrorList {
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(text), &avoid); err != nil {
		return field.ErrorList{field.Invalid(path.Child("AvoidPods"), avoidPodsAnnotation, err.Error())}
	}
	var errs field.ErrorList
	for i, a := range avoid.PreferAvoidPods {
		at := path.Child(avoidPodsAnnotation).Index(i).Child("PodSignature")
		if c := a.PodSignature.PodController; c == nil {
			errs = append(errs, field.Required(at, ""))
		} else if c.Controller == nil || !*c.Controller {
			errs = append(errs, field.Invalid(at.Child("PodController", "Controller"), false, "must point to a controller"))
		}
	}
	return errs
}

// validateNodeResources validates the quantities that a kubelet reports.
func validateNodeResources(n *corev1.Node, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		for _, name := range sortedKeys(list.of) {
			errs = append(errs, validateNodeResource(name, list.of[name], path.Child(list.name, string(name)))...)
		}
	}
	return errs
}

// validateNodeResource requires whole numbers for resources that are counted: the standard
// ones such as pods, and extended resources.
func validateNodeResource(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := ValidateNonNegativeQuantity(path, q)
	if (isCounted(string(name)) || IsExtendedResource(string(name))) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
	}
	return errs
}

// declaredFeature is the form of a feature: MyFeature or MyFeature/mySubFeature.
var declaredFeature = field.Pattern(`^[A-Z][a-zA-Z0-9]*(\/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validateDeclaredFeatures validates the features that a kubelet declares.
// The list must be sorted, so equal sets of features are equal lists.
func validateDeclaredFeatures(features []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, f := range features {
		at := path.Index(i)
		if most := validation.DNS1123SubdomainMaxLength; len(f) > most {
			errs = append(errs,
				field.Invalid(at, f, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", f, most)))
		} else if !declaredFeature().MatchString(f) {
			errs = append(errs, field.Invalid(at, f,
				fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent "+
					"segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "+
					"characters and slashes", f)))
		}
		if i == 0 {
			continue
		}
		switch before := features[i-1]; {
		case before == f:
			errs = append(errs, field.Duplicate(at, f))
		case before > f:
			errs = append(errs, field.Invalid(at, f, "list must be sorted alphabetically"))
		}
	}
	return errs
}

// internalCIDRError has the text of kube-apiserver, which has no space after the colon.
type internalCIDRError struct{ error }

func (e internalCIDRError) Error() string {
	return "invalid PodCIDRs. failed to check with dual stack with error:" + e.error.Error()
}

// validateTaints validates taints. Two taints with the same key and effect are duplicates, even if their values
// differ.
func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[key]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, field.LabelKey(at.Child("key"), t.Key)...)
		errs = append(errs, joinedLabelValue(at.Child("value"), t.Value)...)
		errs = append(errs, field.NotEmptyAnd(at.Child("effect"), t.Effect, taintEffect)...)
		k := key{t.Key, t.Effect}
		if seen[k] {
			err := field.Duplicate(at, declare.Internal(t))
			err.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, err)
		}
		seen[k] = true
	}
	return errs
}

// validateNodeStatusUpdate checks the rules for updates of a Node and of its status.
// Controllers of cloud providers find the machine of a node by its providerID, so it cannot change once it is
// set. The error shows no value, as in kube-apiserver.
func validateNodeStatusUpdate(n, old *corev1.Node) field.ErrorList {
	meta, spec, status := field.NewPath("metadata"), field.NewPath("spec"), field.NewPath("status")
	errs := validateNodeAnnotations(n.Annotations, meta.Child("annotations"))
	errs = append(errs, validateNodeResources(n, status)...)
	errs = append(errs, validateDeclaredFeatures(n.Status.DeclaredFeatures, status.Child("declaredFeatures"))...)
	// Equal means the same type and address. One address may have two types, such as InternalIP and Hostname.
	seen := map[corev1.NodeAddress]bool{}
	for i, a := range n.Status.Addresses {
		if seen[a] {
			errs = append(errs, field.Duplicate(status.Child("addresses").Index(i), declare.Internal(a)))
		}
		seen[a] = true
	}
	errs = append(errs, validatePodCIDRsUpdate(n.Spec.PodCIDRs, old.Spec.PodCIDRs, spec.Child("podCIDRs"))...)
	if id, before := n.Spec.ProviderID, old.Spec.ProviderID; before != "" && id != before {
		detail := "field cannot be modified once set"
		if id == "" {
			detail = "field cannot be cleared once set"
		}
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, detail))
	}
	if s := n.Spec.ConfigSource; s != nil {
		errs = append(errs, validateConfigSource(s, spec.Child("configSource"), false)...)
	}
	if c := n.Status.Config; c != nil {
		for _, part := range []struct {
			name   string
			source *corev1.NodeConfigSource
		}{{"assigned", c.Assigned}, {"active", c.Active}, {"lastKnownGood", c.LastKnownGood}} {
			if part.source != nil {
				errs = append(errs, validateConfigSource(part.source, status.Child("config", part.name), true)...)
			}
		}
	}
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)
	return append(errs, field.ForbiddenIf(n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID,
		spec.Child("externalID"), "may not be updated")...)
}

// validatePreemptionPolicy validates who has disabled preemption for the resizing of pods on a node. Entries that the node had
// before the update are not validated again.
// The limit of 20 entries is a marker of the field in k8s.io/api (+k8s:maxItems), not a part of its description.
func validatePreemptionPolicy(n, old *corev1.Node) field.ErrorList {
	const most = 20
	policy, before := n.Spec.PodPreemptionPolicy, old.Spec.PodPreemptionPolicy
	if policy == nil || equality.Semantic.DeepEqual(policy, before) {
		return nil
	}
	path := field.NewPath("spec", "podPreemptionPolicy", "disableResizePreemption")
	owners := policy.DisableResizePreemption
	if errs := field.MaxItems(path, len(owners), most); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i, owner := range owners {
		if before == nil || !slices.Contains(before.DisableResizePreemption, owner) {
			errs = append(errs, field.LabelKey(path.Index(i), owner)...)
		}
	}
	seen := sets.New[string]()
	for i, owner := range owners {
		errs = append(errs, field.Unique(seen, path.Index(i), owner)...)
	}
	return errs
}

// validatePodCIDRsUpdate returns an error for each CIDR that has changed. A node without CIDRs
// can get them once.
// Running pods have addresses of the ranges, so the ranges cannot change under them.
func validatePodCIDRsUpdate(cidrs, old []string, path *field.Path) field.ErrorList {
	changed := field.Forbidden(path, `node updates may not change podCIDR except from "" to valid`)
	if len(old) == 0 {
		return nil
	}
	if len(cidrs) != len(old) {
		return field.ErrorList{changed}
	}
	var errs field.ErrorList
	for i := range old {
		if cidrs[i] != old[i] {
			errs = append(errs, changed)
		}
	}
	return errs
}

// validateConfigSource validates the source of a kubelet's configuration. In a status it must
// have the UID and resourceVersion of the ConfigMap, in a spec it must not.
func validateConfigSource(s *corev1.NodeConfigSource, path *field.Path, inStatus bool) field.ErrorList {
	if s.ConfigMap == nil {
		return field.ErrorList{field.Invalid(path, declare.Internal(s), "exactly one reference subfield must be non-nil")}
	}
	var errs field.ErrorList
	m, path := s.ConfigMap, path.Child("configMap")
	for _, v := range []struct{ name, value string }{{"uid", string(m.UID)}, {"resourceVersion", m.ResourceVersion}} {
		switch at := path.Child(v.name); {
		case inStatus && v.value == "":
			errs = append(errs, field.Required(at, ""))
		case !inStatus && v.value != "":
			errs = append(errs, field.Forbidden(at, v.name+" must not be set in spec"))
		}
	}
	for _, v := range []struct {
		name, value string
		wrong       func(string) []string
	}{
		{"namespace", m.Namespace, func(s string) []string { return apivalidation.ValidateNamespaceName(s, false) }},
		{"name", m.Name, func(s string) []string { return apivalidation.NameIsDNSSubdomain(s, false) }},
		{"kubeletConfigKey", m.KubeletConfigKey, validation.IsConfigMapKey},
	} {
		at := path.Child(v.name)
		if v.value == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		errs = append(errs, field.Messages(at, v.value, v.wrong(v.value))...)
	}
	return errs
}
