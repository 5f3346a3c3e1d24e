package dra

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// This file has the rules for what several kinds of the group have: names, attributes, configurations and tolerations.

// validateList validates each item of a list whose items have different keys. Of a list that is too long it validates none. The error of
// an item that repeats a key is about the whole item.
func validateList[T any](
	list []T, most int, path *field.Path, key func(*T) string, validate func(*T, *field.Path) field.ErrorList,
) field.ErrorList {
	if errs := field.MaxItems(path, len(list), most); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	seen := make(sets.Set[string], len(list))
	for i := range list {
		at, k := path.Index(i), key(&list[i])
		errs = append(errs, validate(&list[i], at)...)
		errs = append(errs, field.Unique(seen, at, k)...)
	}
	return errs
}

func itself(name *string) string { return *name }

// validateDriver validates the name of a driver, a subdomain that may have upper case letters.
func validateDriver(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := field.Messages(path, name, names.IsDNS1123Subdomain(strings.ToLower(name)))
	return append(errs, field.MaxLength(path, name, resourcev1.DriverNameMaxLength)...)
}

// validatePool validates the name of a pool: subdomains, separated by slashes.
func validatePool(path *field.Path, name string) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs = append(errs, field.MaxLength(path, name, resourcev1.PoolNameMaxLength)...)
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, field.DNSSubdomain(path, part)...)
	}
	return errs
}

// validateAttributeName validates the name of an attribute or a capacity: an identifier, with a domain before it or
// without.
func validateAttributeName(name resourcev1.QualifiedName, path *field.Path) (errs field.ErrorList) {
	parts := strings.Split(string(name), "/")
	switch len(parts) {
	case 1:
		return validateIdentifier(parts[0], path)
	case 2:
		if parts[0] == "" {
			errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
		} else {
			errs = append(errs, validateDomain(parts[0], path)...)
		}
		if parts[1] == "" {
			return append(errs, field.Invalid(path, "", "the name must not be empty"))
		}
		return append(errs, validateIdentifier(parts[1], path)...)
	}
	return nil // kube-apiserver accepts other numbers of slashes
}

func validateDomain(name string, path *field.Path) field.ErrorList {
	return field.Join(field.DNSSubdomain(path, name), field.MaxLength(path, name, resourcev1.DeviceMaxDomainLength))
}

func validateIdentifier(name string, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.MaxLength(path, name, resourcev1.DeviceMaxIDLength)...)
	return append(errs, field.Messages(path, name, validation.IsCIdentifier(name))...)
}

// validateFullName validates the name of an attribute with its domain.
func validateFullName(name resourcev1.FullyQualifiedName, path *field.Path) field.ErrorList {
	errs := validateAttributeName(resourcev1.QualifiedName(name), path)
	return append(errs, field.InvalidIf(!strings.Contains(string(name), "/"), path, name,
		"a fully qualified name must be a domain and a name separated by a slash")...)
}

// validateConfiguration validates a configuration of a driver. Opaque parameters are the only type of it.
func validateConfiguration(c *resourcev1.DeviceConfiguration, path *field.Path) field.ErrorList {
	at := path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateDriver(at.Child("driver"), c.Opaque.Driver)
	return append(errs,
		validateData(&c.Opaque.Parameters, resourcev1.OpaqueParametersMaxLength, at.Child("parameters"))...)
}

// validateData validates that data of a driver is a JSON object.
func validateData(data *runtime.RawExtension, most int, path *field.Path) field.ErrorList {
	var object any
	switch {
	case len(data.Raw) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(data.Raw) > most:
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	if err := json.Unmarshal(data.Raw, &object); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", "error parsing data as JSON: "+err.Error())}
	}
	_, ok := object.(map[string]any)
	return field.InvalidIf(object != nil && !ok, path, "<value omitted>", "must be a valid JSON object")
}

func validateTolerations(list []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	errs := field.MaxItems(path, len(list), resourcev1.DeviceTolerationsMaxLength)
	return append(errs, field.Each(path, list, validateToleration)...)
}

func validateToleration(t *resourcev1.DeviceToleration, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.IfSet(path.Child("key"), t.Key, field.LabelKey)...)
	at := path.Child("value")
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		errs = append(errs, field.InvalidIf(t.Value != "", at, t.Value, "must be empty for operator `Exists`")...)
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, field.LabelValue(at, t.Value)...)
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator,
			[]resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}))
	}
	return append(errs, field.IfSet(path.Child("effect"), t.Effect, validateEffect)...)
}

func validateEffect(path *field.Path, effect resourcev1.DeviceTaintEffect) field.ErrorList {
	return field.RequiredOneOf(path, effect, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule,
		resourcev1.DeviceTaintEffectNone)
}

// sortedKeys returns the names in a map in order, so that errors have the same order each time.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
