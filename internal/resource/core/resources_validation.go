package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// ValidateResourceRequirements validates requests and limits. claims are the names of the
// pod's resource claims.
func ValidateResourceRequirements(
	r *corev1.ResourceRequirements, claims sets.Set[string], path *field.Path,
) field.ErrorList {
	return validateRequirements(r, claims, ValidateContainerResourceName, path)
}

// validateRequirements validates requests and limits. validateName validates the names of the resources.
// Resources that cannot be overcommitted (huge pages and extended resources) need a limit, and a request that
// equals it. Others may have a request below the limit.
func validateRequirements(
	r *corev1.ResourceRequirements, claims sets.Set[string], validateName func(string, *field.Path) field.ErrorList,
	path *field.Path,
) field.ErrorList {
	limits, requests := path.Child("limits"), path.Child("requests")
	var errs field.ErrorList
	huge, cpuOrMemory := false, false
	note := func(name corev1.ResourceName) {
		huge = huge || isHugePages(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for _, name := range sortedKeys(r.Limits) {
		q, at := r.Limits[name], limits.Key(string(name))
		errs = append(errs, validateName(string(name), at)...)
		errs = append(errs, validateResourceValue(name, q, at)...)
		errs = append(errs, validateHugePages(name, q, at)...)
		note(name)
	}
	for _, name := range sortedKeys(r.Requests) {
		q, at := r.Requests[name], requests.Key(string(name))
		errs = append(errs, validateName(string(name), at)...)
		errs = append(errs, validateResourceValue(name, q, at)...)
		errs = append(errs, validateHugePages(name, q, at)...)
		note(name)
		limit, limited := r.Limits[name]
		switch {
		case limited && q.Cmp(limit) != 0 && !overcommitAllowed(name):
			errs = append(errs,
				field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && q.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, q.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && !overcommitAllowed(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
	}
	errs = append(errs, field.ForbiddenIf(huge && !cpuOrMemory, path, "HugePages require cpu or memory")...)
	return append(errs, validateClaimsUsed(r.Claims, claims, path.Child("claims"))...)
}

// validateHugePages requires whole pages of the size in the name of the resource.
// For example, hugepages-2Mi may be 4Mi, but not 3Mi.
func validateHugePages(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return nil
	}
	page, err := resource.ParseQuantity(size)
	if err != nil || page.Sign() <= 0 || page.MilliValue()%1000 != 0 || q.Value()%page.Value() != 0 {
		message := fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)
		return field.ErrorList{field.Invalid(path, q.String(), message)}
	}
	return nil
}

// validateClaimsUsed validates which claims of the pod a container uses. A container uses either a whole claim
// or single requests of it: the whole claim has these requests already.
func validateClaimsUsed(used []corev1.ResourceClaim, claims sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]() // names of claims, and of requests as claim/request
	for i, c := range used {
		at := path.Index(i)
		if c.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		key := c.Name
		if c.Request != "" {
			key += "/" + c.Request
			errs = append(errs, field.DNSLabel(at.Child("request"), c.Request)...)
		}
		switch {
		case seen.Has(key):
			errs = append(errs, field.Duplicate(at, key))
		case seen.Has(c.Name):
			errs = append(errs, field.Duplicate(at, c.Name))
		default:
			for other := range seen {
				errs = append(errs, field.DuplicateIf(c.Request == "" && strings.HasPrefix(other, c.Name+"/"), at, c.Name)...)
			}
			seen.Insert(key)
		}
		if !claims.Has(c.Name) {
			err := field.NotFound(at, c.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims"
			if claims.Len() == 0 {
				err.Detail += " which is empty"
			} else {
				err.Detail += ": " + strings.Join(sets.List(claims), ", ")
			}
			errs = append(errs, err)
		}
	}
	return errs
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNativeResource reports whether Kubernetes defines the resource. It looks for kubernetes.io/ anywhere in the
// name, so the names of domains below kubernetes.io are native too.
func isNativeResource(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
}

// overcommitAllowed reports whether the limits of all containers may be more than a node has.
func overcommitAllowed(name corev1.ResourceName) bool {
	return isNativeResource(string(name)) && !isHugePages(name)
}

// IsExtendedResource reports whether the name is that of a resource of a vendor, such as example.com/gpu.
func IsExtendedResource(name string) bool {
	if isNativeResource(name) || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	// A quota names the resource requests.example.com/gpu, which must be a valid key too.
	return len(names.IsLabelKey(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

var (
	// containerResources are what containers may have, besides huge pages. standardResources has the names in
	// quotas too.
	containerResources = []string{"cpu", "memory", "ephemeral-storage"}
	standardResources  = []string{
		"cpu", "memory", "ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage",
		"requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods", "resourcequotas", "services",
		"replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps", "services.nodeports",
		"services.loadbalancers", "storage", "requests.storage",
	}
)

// ValidateResourceName accepts the names of standard resources, and qualified names.
// Names without a domain are reserved for Kubernetes.
func ValidateResourceName(name string, path *field.Path) field.ErrorList {
	if errs := field.LabelKey(path, name); len(errs) > 0 {
		return errs
	}
	return field.InvalidIf(!strings.Contains(name, "/") && !slices.Contains(standardResources, name) &&
		!isHugePages(corev1.ResourceName(name)) && !strings.HasPrefix(name, "requests."+corev1.ResourceHugePagesPrefix),
		path, name, "must be a standard resource type or fully qualified")
}

// validatePodResourceName accepts the names of resources that the resources of a whole pod may name.
func validatePodResourceName(name string, path *field.Path) field.ErrorList {
	if errs := ValidateResourceName(name, path); len(errs) > 0 {
		return errs
	}
	switch n := corev1.ResourceName(name); {
	case n == corev1.ResourceCPU, n == corev1.ResourceMemory, isHugePages(n):
		return nil
	}
	return field.ErrorList{field.NotSupported(path, name, []string{"cpu", "hugepages-", "memory"})}
}

// ValidateContainerResourceName accepts the names of resources that a container may request.
func ValidateContainerResourceName(name string, path *field.Path) field.ErrorList {
	errs := ValidateResourceName(name, path)
	switch {
	case !strings.Contains(name, "/"):
		errs = append(errs, field.InvalidIf(!slices.Contains(containerResources, name) &&
			!isHugePages(corev1.ResourceName(name)), path, name, "must be a standard resource for containers")...)
	case !isNativeResource(name) && !IsExtendedResource(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// validateResourceValue validates a quantity. Devices and objects cannot be divided: 500m of example.com/gpu is
// refused.
func validateResourceValue(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := ValidateNonNegativeQuantity(path, q)
	if !isNativeResource(string(name)) || isCounted(string(name)) {
		if q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
		}
	}
	return errs
}

// isCounted reports whether the resource is a number of objects, such as pods or secrets.
func isCounted(name string) bool {
	return slices.Contains(
		[]string{"pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims",
			"configmaps", "services.nodeports", "services.loadbalancers"}, name)
}
