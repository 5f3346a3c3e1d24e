package core

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateAffinity validates the affinities. The label values in a required node affinity are validated
// elsewhere, because stored objects may have invalid ones: see validateRequiredNodeValues.
func validateAffinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		path := path.Child("nodeAffinity")
		errs = append(errs, field.IfPresent(path.Child("requiredDuringSchedulingIgnoredDuringExecution"),
			n.RequiredDuringSchedulingIgnoredDuringExecution, ValidateNodeSelector)...)
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			p, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i],
				path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			errs = append(errs, validateWeight(p.Weight, at)...)
			errs = append(errs, validateNodeTerm(&p.Preference, at.Child("preference"))...)
		}
	}
	errs = append(errs, field.IfPresent(path.Child("podAffinity"), a.PodAffinity, validatePodTerms)...)
	return append(errs, field.IfPresent(path.Child("podAntiAffinity"), (*corev1.PodAffinity)(a.PodAntiAffinity),
		validatePodTerms)...)
}

// validateRequiredNodeValues requires that the values in the required node affinity are valid label values.
// Invalid values in preferred terms only give warnings (podWarnings).
func validateRequiredNodeValues(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil {
		return nil
	}
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	terms := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if terms == nil {
		return nil
	}
	return ValidateNodeSelectorValues(terms, path.Child("affinity", "nodeAffinity", required))
}

func validateWeight(n int32, path *field.Path) field.ErrorList {
	return field.InvalidIf(n <= 0 || n > 100, path.Child("weight"), n, "must be in the range 1-100")
}

// ValidateNodeSelector validates the node selector of a pod or a volume.
func ValidateNodeSelector(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	path = path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(path, "must have at least one node selector term")}
	}
	return field.Each(path, s.NodeSelectorTerms, validateNodeTerm)
}

func validateNodeTerm(t *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	errs := field.Each(path.Child("matchExpressions"), t.MatchExpressions, validateNodeRequirement)
	return append(errs, field.Each(path.Child("matchFields"), t.MatchFields, validateNodeFieldRequirement)...)
}

// validateNodeRequirement validates a requirement for the labels of a node. The value for Gt and Lt is not
// parsed here: a text that is not an integer is accepted.
func validateNodeRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		errs = append(errs, field.RequiredIf(len(r.Values) == 0, values,
			"must be specified when `operator` is 'In' or 'NotIn'")...)
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		errs = append(errs, field.ForbiddenIf(len(r.Values) > 0, values,
			"may not be specified when `operator` is 'Exists' or 'DoesNotExist'")...)
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		errs = append(errs, field.RequiredIf(len(r.Values) != 1, values,
			"must be specified single value when `operator` is 'Lt' or 'Gt'")...)
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return append(errs, field.LabelKey(path.Child("key"), r.Key)...)
}

// validateNodeFieldRequirement validates a requirement for the fields of a node. The name is the only field;
// the DaemonSet controller uses it to bind a pod to one node.
func validateNodeFieldRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		errs = append(errs, field.RequiredIf(len(r.Values) != 1, path.Child("values"),
			"must be only one value when `operator` is 'In' or 'NotIn' for node field selector")...)
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != "metadata.name" {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	return append(errs, field.EachValue(path.Child("values"), r.Values, field.DNSSubdomain)...)
}

// validatePodTerms validates the rules of an affinity, or of an anti-affinity, which has the same fields.
func validatePodTerms(a *corev1.PodAffinity, path *field.Path) field.ErrorList {
	errs := field.Each(path.Child("requiredDuringSchedulingIgnoredDuringExecution"),
		a.RequiredDuringSchedulingIgnoredDuringExecution, validatePodTerm)
	preferred := a.PreferredDuringSchedulingIgnoredDuringExecution
	for i := range preferred {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(preferred[i].Weight, at)...)
		errs = append(errs, validatePodTerm(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

// validatePodTerm validates a term about other pods. An empty topology key gets two errors, as in
// kube-apiserver.
func validatePodTerm(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := field.LabelSelector(path.Child("labelSelector"), t.LabelSelector)
	errs = append(errs, field.LabelSelector(path.Child("namespaceSelector"), t.NamespaceSelector)...)
	for _, name := range t.Namespaces {
		errs = append(errs, field.DNSLabel(path.Child("namespace"), name)...)
	}
	errs = append(errs, validateTermKeys(t, path)...)
	errs = append(errs, field.RequiredIf(t.TopologyKey == "", path.Child("topologyKey"), "can not be empty")...)
	return append(errs, field.LabelKey(path.Child("topologyKey"), t.TopologyKey)...)
}

// validateTermKeys checks that each of matchLabelKeys and mismatchLabelKeys is in the label
// selector exactly once.
// The server merges the keys into the selector of a new pod, so they are there once (mergeMatchLabelKeys).
func validateTermKeys(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", t.MatchLabelKeys}, {"mismatchLabelKeys", t.MismatchLabelKeys}} {
		at := path.Child(list.name)
		if len(list.keys) > 0 && t.LabelSelector == nil {
			errs = append(errs, field.Forbidden(at, "must not be specified when labelSelector is not set"))
			continue
		}
		errs = append(errs, field.EachValue(at, list.keys, field.LabelKey)...)
	}
	if t.LabelSelector != nil {
		errs = append(errs, requireKeysOnce(t.LabelSelector, t.MatchLabelKeys, path)...)
	}
	mismatch := sets.New(t.MismatchLabelKeys...)
	for i, key := range t.MatchLabelKeys {
		errs = append(errs, field.InvalidIf(mismatch.Has(key), path.Child("matchLabelKeys").Index(i), key,
			"exists in both matchLabelKeys and mismatchLabelKeys")...)
	}
	return errs
}

// requireKeysOnce returns an error unless each key occurs in the selector exactly once. path
// is the path of the object with the selector; the error's index is the last position of the
// key.
func requireKeysOnce(s *metav1.LabelSelector, keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	used := sets.New[string]()
	for key := range s.MatchLabels {
		used.Insert(key)
	}
	last := map[string]int{}
	for i, key := range keys {
		last[key] = i
	}
	for _, e := range s.MatchExpressions {
		i, merged := last[e.Key]
		errs = append(errs, field.InvalidIf(merged && used.Has(e.Key), path.Index(i), e.Key,
			"exists in both matchLabelKeys and labelSelector")...)
		used.Insert(e.Key)
	}
	return errs
}

// ValidateTolerations returns what is wrong with the tolerations of a pod.
func ValidateTolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	return validateTolerations(list, false, path)
}

// validateTolerations is ValidateTolerations that allows the operators Lt and Gt if compare is true.
func validateTolerations(list []corev1.Toleration, compare bool, path *field.Path) field.ErrorList {
	return field.Each(path, list, func(t *corev1.Toleration, at *field.Path) field.ErrorList {
		return validateToleration(t, compare, at)
	})
}

// joinedLabelValue is field.LabelValue with one error for all that is wrong, as the values of taints and tolerations have it.
func joinedLabelValue(path *field.Path, value string) field.ErrorList {
	if problems := names.IsLabelValue(value); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, value, strings.Join(problems, ";"))}
	}
	return nil
}

// validateToleration validates a toleration. As in kube-apiserver, errors about the value for Equal and Exists
// have the path of the operator. A toleration with Exists and without a key tolerates taints with any key.
func validateToleration(t *corev1.Toleration, compare bool, path *field.Path) field.ErrorList {
	errs := field.IfSet(path.Child("key"), t.Key, field.LabelKey)
	operator := path.Child("operator")
	errs = append(errs, field.InvalidIf(t.Key == "" && t.Operator != corev1.TolerationOpExists, operator, t.Operator,
		"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")...)
	errs = append(errs, field.InvalidIf(t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute,
		path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")...)
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		errs = append(errs, joinedLabelValue(operator, t.Value)...)
	case corev1.TolerationOpExists:
		errs = append(errs, field.InvalidIf(t.Value != "", operator, t.Value,
			"value must be empty when `operator` is 'Exists'")...)
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		// The list of supported operators has them, although the feature is disabled.
		if !compare {
			errs = append(errs, field.NotSupported(operator, t.Operator,
				[]corev1.TolerationOperator{
					corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}))
			break
		}
		value := path.Child("value")
		errs = append(errs, field.Messages(value, t.Value, content.IsDecimalInteger(t.Value))...)
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			errs = append(errs, field.Invalid(value, t.Value, err.Error()))
		}
	default:
		errs = append(errs, field.NotSupported(operator, t.Operator,
			[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	return append(errs, field.IfSet(path.Child("effect"), t.Effect, taintEffect)...)
}

func taintEffect(path *field.Path, e corev1.TaintEffect) field.ErrorList {
	return field.OneOf(path, e, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

// validateSpread validates the rules about the spread of pods over domains such as zones (KEP-895). Two rules
// with the same key and the same whenUnsatisfiable are duplicates, whatever their selectors are. minDomains
// raises the number of domains that have to be used (KEP-3022), which is not possible for a mere preference.
func validateSpread(list []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		c, at := &list[i], path.Index(i)
		errs = append(errs, field.InvalidIf(c.MaxSkew <= 0, at.Child("maxSkew"), c.MaxSkew, mustBePositive)...)
		errs = append(errs, field.RequiredIf(c.TopologyKey == "", at.Child("topologyKey"), "can not be empty")...)
		errs = append(errs,
			field.OneOf(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		for j := i + 1; j < len(list); j++ {
			if list[j].TopologyKey == c.TopologyKey && list[j].WhenUnsatisfiable == c.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
					fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		if m := c.MinDomains; m != nil {
			errs = append(errs, field.InvalidIf(*m <= 0, at.Child("minDomains"), *m, mustBePositive)...)
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *m,
					fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, field.OptionalOneOf(at.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy,
			corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, field.OptionalOneOf(at.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy,
			corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, validateSpreadKeys(c, at)...)
		errs = append(errs, field.LabelSelector(at.Child("labelSelector"), c.LabelSelector)...)
	}
	return errs
}

// validateSpreadKeys validates matchLabelKeys (KEP-3243), which need a selector that they can be merged into.
func validateSpreadKeys(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	if len(c.MatchLabelKeys) == 0 {
		return nil
	}
	at := path.Child("matchLabelKeys")
	if c.LabelSelector == nil {
		return field.ErrorList{field.Forbidden(at, "must not be specified when labelSelector is not set")}
	}
	errs := field.EachValue(at, c.MatchLabelKeys, field.LabelKey)
	return append(errs, requireKeysOnce(c.LabelSelector, c.MatchLabelKeys, path)...)
}
