package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// ValidateTemplate validates the pod template of a workload, with its labels and annotations. old is the template before an
// update, nil for a new object.
// A template has no ephemeral containers: they are for debugging one running pod (KEP-277).
func (g *PodGates) ValidateTemplate(t, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var before *corev1.PodSpec
	rules := g.rules
	if old != nil {
		before = &old.Spec
		rules = rules.keeping(before, old.Annotations)
	}
	spec := path.Child("spec")
	errs := validateTemplateMetadata(t, rules, path)
	errs = append(errs, validatePodSpec(&t.Spec, rules, "", false, spec)...)
	errs = append(errs, validateRequiredNodeValues(&t.Spec, spec)...)
	errs = append(errs, validateSeccompMatch(t.Annotations, &t.Spec, spec)...)
	errs = append(errs, validateAppArmorMatch(t.Annotations, &t.Spec, spec)...)
	errs = append(errs, field.ForbiddenIf(len(t.Spec.EphemeralContainers) > 0, path.Child("spec", "ephemeralContainers"),
		"ephemeral containers not allowed in pod template")...)
	if len(t.Spec.EvictionResponders) == 0 {
		return errs
	}
	if before == nil {
		before = &corev1.PodSpec{}
	}
	return append(errs, validateResponders(t.Spec.EvictionResponders, before.EvictionResponders,
		path.Child("spec", "evictionResponders"))...)
}

// validateTemplateMetadata validates labels and annotations. Other metadata of a template, such as its name,
// has no effect and is not validated.
func validateTemplateMetadata(t *corev1.PodTemplateSpec, rules podRules, path *field.Path) field.ErrorList {
	errs := validateLabels(path.Child("labels"), t.Labels)
	at := path.Child("annotations")
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.K8s())...)
	return append(errs, validatePodAnnotations(t.Annotations, &t.Spec, rules, at)...)
}

// validatePodSpec validates the spec of a pod or of a template. name is the name of the pod,
// "" for a template.
// The order of the calls is the order of the errors in the response. Volumes and claims come before the
// containers, which refer to them.
func validatePodSpec(s *corev1.PodSpec, rules podRules, name string, pod bool, path *field.Path) field.ErrorList {
	p := &podValidator{spec: s, pod: pod, claims: sets.New[string](), rules: rules}
	var errs field.ErrorList
	p.volumes, errs = validateVolumes(s.Volumes, rules, name, path.Child("volumes"))
	errs = append(errs, p.validateClaims(path.Child("resourceClaims"))...)
	errs = append(errs, p.validateContainers(path.Child("containers"))...)
	errs = append(errs, p.validateInitContainers(path.Child("initContainers"))...)
	errs = append(errs, p.validateEphemeralContainers(path.Child("ephemeralContainers"))...)
	errs = append(errs, field.OneOf(path.Child("restartPolicy"), s.RestartPolicy, corev1.RestartPolicyAlways,
		corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, p.rules.addresses.validateDNS(s, path)...)
	errs = append(errs, validateLabels(path.Child("nodeSelector"), s.NodeSelector)...)
	errs = append(errs, p.validatePodSecurityContext(s.SecurityContext, path.Child("securityContext"))...)
	errs = append(errs, validateAffinity(s.Affinity, path.Child("affinity"))...)
	errs = append(errs, validateTolerations(s.Tolerations, rules.compareTolerations, path.Child("tolerations"))...)
	errs = append(errs, validateSpread(s.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	errs = append(errs, validateGates(s, path)...)
	errs = append(errs, validatePodNames(s, path)...)
	errs = append(errs, p.rules.addresses.validateHostAliases(s.HostAliases, path.Child("hostAliases"))...)
	errs = append(errs, p.validateHostProcess(path)...)
	errs = append(errs, p.validateHostPorts(path)...)
	errs = append(errs, p.validateOS(path)...)
	errs = append(errs, p.validatePodResources(path.Child("resources"))...)
	if d := s.ActiveDeadlineSeconds; d != nil {
		errs = append(errs, field.InRange(path.Child("activeDeadlineSeconds"), *d, 1, math.MaxInt32)...)
	}
	if pp := s.PreemptionPolicy; pp != nil {
		errs = append(errs, field.RequiredOneOf(path.Child("preemptionPolicy"), *pp, corev1.PreemptLowerPriority,
			corev1.PreemptNever)...)
	}
	// The overhead comes from the RuntimeClass of the pod (KEP-688).
	if len(s.Overhead) > 0 {
		overhead := &corev1.ResourceRequirements{Limits: s.Overhead}
		errs = append(errs, ValidateResourceRequirements(overhead, nil, path.Child("overhead"))...)
	}
	if g := s.SchedulingGroup; g != nil {
		errs = append(errs, validateSchedulingGroup(g, len(s.EvictionResponders) > 0, path.Child("schedulingGroup"))...)
	}
	return append(errs, p.validateHostNamespaces(path)...)
}

// validateHostNamespaces forbids the namespaces of the host to pods in a user namespace of their own, and to processes
// that share a namespace.
// A user namespace (KEP-127) separates the users of the pod from those of the host. Errors name HostPID and
// HostIPC with a capital H, as in kube-apiserver.
func (p *podValidator) validateHostNamespaces(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if share := p.spec.ShareProcessNamespace; share != nil && *share && p.spec.HostPID {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), *share,
			"ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if p.hostUsers() {
		return errs
	}
	forbid := func(path *field.Path, set bool) {
		errs = append(errs, field.ForbiddenIf(set, path, "when `hostUsers` is false")...)
	}
	forbid(path.Child("hostNetwork"), p.spec.HostNetwork && !p.rules.hostNetworkUsers)
	forbid(path.Child("HostPID"), p.spec.HostPID)
	forbid(path.Child("HostIPC"), p.spec.HostIPC)
	return errs
}

// validateClaims validates the resource claims of a pod (KEP-4381), and collects their names for the
// containers. For a mirror pod, the names are collected although its claims are refused, so its containers give
// no second error.
func (p *podValidator) validateClaims(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range p.spec.ResourceClaims {
		c, at := &p.spec.ResourceClaims[i], path.Index(i)
		if p.rules.noClaims {
			p.claims.Insert(c.Name)
			errs = append(errs, staticPodForbidden("static pods do not support resource claims"))
			continue
		}
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.claims.Has(c.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		default:
			errs = append(errs, field.DNSLabel(at.Child("name"), c.Name)...)
			p.claims.Insert(c.Name)
		}
		if c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil {
			errs = append(errs, field.Invalid(at, declare.Internal(c),
				"at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		}
		if c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil {
			errs = append(errs,
				field.Invalid(at, declare.Internal(c), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		errs = append(errs, field.Optional(at.Child("resourceClaimName"), c.ResourceClaimName, field.DNSSubdomain)...)
		errs = append(errs, field.Optional(at.Child("resourceClaimTemplateName"), c.ResourceClaimTemplateName,
			field.DNSSubdomain)...)
	}
	return errs
}

// validateDNS validates the DNS policy and the configuration. With the policy None, the pod gets only the name
// servers of the configuration, so there must be one.
func (r AddressRules) validateDNS(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	policy := path.Child("dnsPolicy")
	errs := field.RequiredOneOf(policy, s.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst,
		corev1.DNSDefault, corev1.DNSNone)
	path = path.Child("dnsConfig")
	c := s.DNSConfig
	if s.DNSPolicy == corev1.DNSNone {
		if c == nil {
			return append(errs, field.Required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
		}
		if len(c.Nameservers) == 0 {
			return append(errs,
				field.Required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None"))
		}
	}
	if c == nil {
		return errs
	}
	// The C library reads no more than 3 name servers. The limits of searches are those of KEP-2595.
	const mostServers, mostSearches, longestSearches = 3, 32, 2048
	if len(c.Nameservers) > mostServers {
		errs = append(errs, field.Invalid(path.Child("nameservers"), c.Nameservers,
			fmt.Sprintf("must not have more than %v nameservers", mostServers)))
	}
	errs = append(errs, r.validateIPs(path.Child("nameservers"), c.Nameservers, nil)...)
	if len(c.Searches) > mostSearches {
		errs = append(errs, field.Invalid(path.Child("searches"), c.Searches,
			fmt.Sprintf("must not have more than %v search paths", mostSearches)))
	}
	if len(strings.Join(c.Searches, " ")) > longestSearches {
		errs = append(errs, field.Invalid(path.Child("searches"), c.Searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", longestSearches)))
	}
	for i, search := range c.Searches {
		// A search path may be the root (KEP-4427), end with a dot, and have underscores.
		if search == "." {
			continue
		}
		search = strings.TrimSuffix(search, ".")
		errs = append(errs,
			field.Messages(path.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search))...)
	}
	for i, o := range c.Options {
		errs = append(errs, field.RequiredIf(o.Name == "", path.Child("options").Index(i), "must not be empty")...)
	}
	return errs
}

// validateGates validates readiness gates and scheduling gates. Readiness gates may have duplicates.
func validateGates(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, g := range s.ReadinessGates {
		errs = append(errs,
			field.LabelKey(path.Child("readinessGates").Index(i).Child("conditionType"), string(g.ConditionType))...)
	}
	seen := sets.New[string]()
	for i, g := range s.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		errs = append(errs, field.LabelKey(at, g.Name)...)
		errs = append(errs, field.Unique(seen, at, g.Name)...)
	}
	return errs
}

// validatePodNames validates the names in a pod spec. A host name in Linux has at most 64 characters.
func validatePodNames(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := field.Join(field.IfSet(path.Child("serviceAccountName"), s.ServiceAccountName, field.DNSSubdomain),
		field.IfSet(path.Child("nodeName"), s.NodeName, field.DNSSubdomain),
		field.IfSet(path.Child("hostname"), s.Hostname, field.DNSLabel),
		field.IfSet(path.Child("subdomain"), s.Subdomain, field.DNSLabel),
		field.IfSet(path.Child("priorityClassName"), s.PriorityClassName, field.DNSSubdomain),
		field.Optional(path.Child("runtimeClassName"), s.RuntimeClassName, field.DNSSubdomain))
	if n := s.HostnameOverride; n != nil {
		const longest = 64
		at := path.Child("hostnameOverride")
		errs = append(errs, field.DNSSubdomain(at, *n)...)
		errs = append(errs, field.MaxLength(at, *n, longest)...)
		errs = append(errs, field.ForbiddenIf(s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN, at,
			"may not be specified when setHostnameAsFQDN is true")...)
		errs = append(errs, field.ForbiddenIf(s.HostNetwork, at, "may not be specified when hostNetwork is true")...)
	}
	return errs
}

// validateSchedulingGroup requires the name of a pod group. responders says whether the pod has eviction responders, which
// do not go together with a group.
func validateSchedulingGroup(g *corev1.PodSchedulingGroup, responders bool, path *field.Path) field.ErrorList {
	at := path.Child("podGroupName")
	errs := field.Optional(at, g.PodGroupName, field.DNSSubdomain)
	errs = append(errs, field.InvalidIf(g.PodGroupName == nil, at, g.PodGroupName, "must specify one of: `podGroupName`")...)
	return append(errs, field.ForbiddenIf(responders, path, "may not be set when evictionResponders is set")...)
}

// validateResponders validates the responders to requests for the eviction of a pod (KEP-4563). Names and priorities that old
// has are not validated again.
func validateResponders(list, old []corev1.EvictionResponder, path *field.Path) field.ErrorList {
	const most = 10
	if equality.Semantic.DeepEqual(list, old) {
		return nil
	}
	if errs := field.MaxItems(path, len(list), most); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range list {
		same := func(r corev1.EvictionResponder) bool { return r.Name == list[i].Name }
		errs = append(errs, field.DuplicateIf(slices.ContainsFunc(list[:i], same), path.Index(i), list[i])...)
	}
	for i := range list {
		r := &list[i]
		before := corev1.EvictionResponder{}
		for k := range old {
			if old[k].Name == r.Name {
				before = old[k]
			}
		}
		if before.Name == "" {
			errs = append(errs, field.NotEmptyAnd(path.Index(i).Child("name"), r.Name, validateResponderName)...)
		}
		if r.Priority == nil || before.Priority == nil || *r.Priority != *before.Priority {
			errs = append(errs, validateResponderPriority(r.Priority, path.Index(i).Child("priority"))...)
		}
	}
	return errs
}

// validateResponderName requires a label key with a domain that does not belong to Kubernetes.
func validateResponderName(path *field.Path, name string) field.ErrorList {
	domain, _, prefixed := strings.Cut(name, "/")
	host := strings.TrimRight(strings.TrimSpace(strings.ToLower(domain)), ".")
	reserved := host == "k8s.io" || host == "kubernetes.io" || strings.HasSuffix(host, ".k8s.io") ||
		strings.HasSuffix(host, ".kubernetes.io")
	errs := field.InvalidIf(reserved, path, name, "domain names *.k8s.io, *.kubernetes.io are reserved")
	wrong := field.LabelKey(path, name)
	errs = append(errs, wrong...)
	return append(errs, field.InvalidIf(len(wrong) == 0 && !prefixed, path, name,
		"must include a prefix (e.g. 'example.com/key')")...)
}

// validateResponderPriority accepts 1000 to 100000. The lower ones are reserved for responders of Kubernetes,
// whose names validateResponderName refuses.
func validateResponderPriority(n *int32, path *field.Path) field.ErrorList {
	const most, reserved = 100_000, 1000
	switch {
	case n == nil:
		return field.ErrorList{field.Required(path, "")}
	case *n < 0:
		return field.NonNegative(path, *n)
	case *n < reserved:
		return field.ErrorList{field.Invalid(path, *n, "priorities 0-999 are reserved for responders with *.k8s.io suffix")}
	}
	return field.InvalidIf(*n > most, path, *n, fmt.Sprintf("must be less than or equal to %d", most))
}

// validateHostAliases validates lines for the file /etc/hosts of the containers.
func (r AddressRules) validateHostAliases(list []corev1.HostAlias, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range list {
		errs = append(errs, r.ValidateIP(path.Index(i).Child("ip"), a.IP, nil)...)
		errs = append(errs, field.EachValue(path.Index(i).Child("hostnames"), a.Hostnames, field.DNSSubdomain)...)
	}
	return errs
}

// validateOS returns errors for fields that the operating system of the pod does not support.
// Without an operating system in the spec, fields of all systems are allowed (KEP-2802).
func (p *podValidator) validateOS(path *field.Path) field.ErrorList {
	os := p.spec.OS
	switch {
	case os == nil:
		return nil
	case os.Name == "":
		return field.ErrorList{field.Required(path.Child("os", "name"), "")}
	case os.Name == corev1.Linux:
		return p.validateLinux(path)
	case os.Name == corev1.Windows:
		return p.validateWindowsPod(path)
	}
	return field.OneOf(path.Child("os"), os.Name, corev1.Linux, corev1.Windows)
}

// validatePodResources validates the resources of the pod as a whole, which limit the
// resources of its containers.
func (p *podValidator) validatePodResources(path *field.Path) field.ErrorList {
	r := p.spec.Resources
	if r == nil {
		return nil
	}
	if p.spec.OS != nil && p.spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(path, "may not be set for a windows pod")}
	}
	errs := validateRequirements(r, p.claims, validatePodResourceName, path)
	errs = append(errs, field.ForbiddenIf(r.Claims != nil, path.Child("claims"),
		"claims may not be set for Resources at pod-level")...)
	together := AggregateContainerResources(p.spec, requestsOf)
	for _, name := range sortedKeys(r.Requests) {
		q := r.Requests[name]
		if sum, ok := together[name]; ok && q.Cmp(sum) < 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), q.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String())))
		}
	}
	return append(errs, p.validatePodLimits(path)...)
}

// validatePodLimits checks that the limits of the pod as a whole are not smaller than those of a container and, for huge
// pages, than the sum of those of all containers.
// Limits of CPU and memory of several containers may add up to more than the limit of the pod: the containers
// share it (KEP-2837). Huge pages cannot be shared in this way.
func (p *podValidator) validatePodLimits(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits := p.spec.Resources.Limits
	together := AggregateContainerResources(p.spec, limitsOf)
	for _, name := range sortedKeys(together) {
		sum := together[name]
		if limit, ok := limits[name]; ok && isHugePages(name) && sum.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("limits").Key(string(name)), limit.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String())))
		}
	}
	for i := range p.spec.Containers {
		own := p.spec.Containers[i].Resources.Limits
		for _, name := range sortedKeys(own) {
			q := own[name]
			if limit, ok := limits[name]; ok && q.Cmp(limit) > 0 {
				at := path.Child("containers").Index(i).Key(string(name)).Child("limits")
				errs = append(errs, field.Invalid(at, q.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", limit.String())))
			}
		}
	}
	return errs
}
