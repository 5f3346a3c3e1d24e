package batch

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateGang validates how the pods of a job are scheduled together, as far as other fields matter: the size of a gang
// is limited by the parallelism, and pods without a gang are disrupted one by one.
func validateGang(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if s.Scheduling == nil {
		return nil
	}
	var errs field.ErrorList
	policy, mode := s.Scheduling.SchedulingPolicy, s.Scheduling.DisruptionMode
	if policy != nil && policy.Gang != nil && policy.Gang.MinCount != nil {
		n, most := *policy.Gang.MinCount, ptr.Deref(s.Parallelism, 1)
		errs = field.InvalidIf(n > most, path.Child("schedulingPolicy", "gang", "minCount"), n,
			fmt.Sprintf("must not be greater than parallelism (%d)", most))
	}
	// Without a policy, pods are scheduled one by one, as with basic.
	basic := policy == nil || policy.Basic != nil || policy.Gang == nil
	return append(errs, field.InvalidIf(basic && mode != nil && mode.All != nil && mode.Single == nil, path.Child("disruptionMode"), "",
		"the disruptionMode `all` is not supported with the Basic scheduling policy")...)
}

// validateGangUpdate forbids to change the scheduling policy from basic to gang, or from gang to basic.
func validateGangUpdate(s, old *batchv1.JobSchedulingConfiguration, path *field.Path) field.ErrorList {
	if s == nil || old == nil || s.SchedulingPolicy == nil || old.SchedulingPolicy == nil ||
		(s.SchedulingPolicy.Basic != nil) == (old.SchedulingPolicy.Basic != nil) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("schedulingPolicy"), nil, "the basic/gang policy variant is immutable "+
		"after creation; only schedulingPolicy.gang.minCount may be updated")}
}

// validateScheduling validates the scheduling of a job or of the jobs of a CronJob. enabled says whether the gate
// WorkloadWithJob is on. old is nil for a new object; what it has too is valid. After the creation only the size of a gang
// may change.
func validateScheduling(s, old *batchv1.JobSpec, enabled bool, path *field.Path) field.ErrorList {
	c := s.Scheduling
	before := &batchv1.JobSchedulingConfiguration{}
	if old != nil {
		if equality.Semantic.DeepEqual(c, old.Scheduling) {
			return nil
		}
		errs := field.ForbiddenIf(!enabled && c != nil, path, "")
		errs = append(errs, validateNotSetOrRemoved(c != nil, old.Scheduling != nil, path)...)
		if len(errs) > 0 {
			return errs
		}
		before = old.Scheduling
	}
	if c == nil {
		return nil
	}
	errs := validateSchedulingPolicy(c, before, old != nil, path.Child("schedulingPolicy"))
	fixed := func(name string, value, was any, rule func(*field.Path) field.ErrorList) {
		switch at := path.Child(name); {
		case equality.Semantic.DeepEqual(value, was):
		case old != nil:
			errs = append(errs, field.Invalid(at, nil, "field is immutable"))
		default:
			errs = append(errs, rule(at)...)
		}
	}
	fixed("schedulingConstraints", c.SchedulingConstraints, before.SchedulingConstraints,
		func(at *field.Path) field.ErrorList { return validateTopology(c, at.Child("topology")) })
	fixed("disruptionMode", c.DisruptionMode, before.DisruptionMode, func(at *field.Path) field.ErrorList {
		return exactlyOne(at, member{"single", c.DisruptionMode.Single != nil}, member{"all", c.DisruptionMode.All != nil})
	})
	fixed("resourceClaims", c.ResourceClaims, before.ResourceClaims,
		func(at *field.Path) field.ErrorList { return validateGroupClaims(c, at) })
	if old != nil && len(c.ResourceClaims) > maxGroupClaims { // they have changed, because the old ones are valid
		errs = append(errs, field.MaxItems(path.Child("resourceClaims"), len(c.ResourceClaims), maxGroupClaims)...)
	}
	return errs
}

// maxGroupClaims is the limit of a PodGroup, which the controller creates with these claims.
const maxGroupClaims = 4

// validateNotSetOrRemoved forbids to set or to remove a field after the creation.
func validateNotSetOrRemoved(is, was bool, path *field.Path) field.ErrorList {
	switch {
	case is && !was:
		return field.ErrorList{field.Invalid(path, nil, "field cannot be set once created")}
	case was && !is:
		return field.ErrorList{field.Invalid(path, nil, "field cannot be cleared once set")}
	}
	return nil
}

// validateSchedulingPolicy validates the policy if it has changed. On update, only the size of a gang may change;
// validateGangUpdate forbids the other changes. The members of the union are checked only if another one is set
// than before.
func validateSchedulingPolicy(c, before *batchv1.JobSchedulingConfiguration, update bool, path *field.Path) field.ErrorList {
	policy, was := c.SchedulingPolicy, before.SchedulingPolicy
	if equality.Semantic.DeepEqual(policy, was) {
		return nil
	}
	if update {
		if errs := validateNotSetOrRemoved(policy != nil, was != nil, path); len(errs) > 0 {
			return errs
		}
	}
	var errs field.ErrorList
	if was == nil || (policy.Basic == nil) != (was.Basic == nil) || (policy.Gang == nil) != (was.Gang == nil) {
		errs = exactlyOne(path, member{"basic", policy.Basic != nil}, member{"gang", policy.Gang != nil})
	}
	if policy.Gang == nil || policy.Gang.MinCount == nil {
		return errs
	}
	n := *policy.Gang.MinCount
	if was != nil && was.Gang != nil && ptr.Deref(was.Gang.MinCount, 0) == n {
		return errs
	}
	return append(errs, field.InvalidIf(n < 1, path.Child("gang", "minCount"), n, "must be greater than or equal to 1")...)
}

func validateTopology(c *batchv1.JobSchedulingConfiguration, path *field.Path) field.ErrorList {
	const most = 1
	list := c.SchedulingConstraints.Topology
	if errs := field.MaxItems(path, len(list), most); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, field.NotEmptyAnd(path.Index(i).Child("key"), list[i].Key, field.LabelKey)...)
	}
	return errs
}

// validateGroupClaims reports repeated names before the errors in each claim, in the order of kube-apiserver. If
// there are too many claims, that is the only error.
func validateGroupClaims(c *batchv1.JobSchedulingConfiguration, path *field.Path) field.ErrorList {
	list := c.ResourceClaims
	if errs := field.MaxItems(path, len(list), maxGroupClaims); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range list {
		for k := range list[:i] {
			if list[k].Name == list[i].Name {
				errs = append(errs, field.Duplicate(path.Index(i), list[i]))
				break
			}
		}
	}
	for i := range list {
		claim, at := &list[i], path.Index(i)
		errs = append(errs, exactlyOne(at, member{"resourceClaimName", claim.ResourceClaimName != nil},
			member{"resourceClaimTemplateName", claim.ResourceClaimTemplateName != nil})...)
		errs = append(errs, field.NotEmptyAnd(at.Child("name"), claim.Name, field.DNSLabel)...)
		errs = append(errs, field.Optional(at.Child("resourceClaimName"), claim.ResourceClaimName, field.DNSSubdomain)...)
		errs = append(errs, field.Optional(at.Child("resourceClaimTemplateName"), claim.ResourceClaimTemplateName,
			field.DNSSubdomain)...)
	}
	return errs
}

// member is a field of a union.
type member struct {
	name string
	set  bool
}

// exactlyOne requires that one member of a union is set.
// The messages are those of kube-apiserver's declarative validation (KEP-5073).
func exactlyOne(path *field.Path, members ...member) field.ErrorList {
	var names, set []string
	for _, m := range members {
		names = append(names, "`"+m.name+"`")
		if m.set {
			set = append(set, m.name)
		}
	}
	all := strings.Join(names, ", ")
	switch len(set) {
	case 0:
		return field.ErrorList{field.Invalid(path, "", "must specify one of: "+all)}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(path, "{"+strings.Join(set, ", ")+"}", "must specify exactly one of: "+all)}
}
