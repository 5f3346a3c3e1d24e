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

// validateList validates each item of a list whose items have different keys. It validates no item of a list that is too long. The error of
// an item that repeats a key is about the whole item.
func validateList[T any, K comparable](
	list []T, most int, path *field.Path, key func(*T) K, validate func(*T, *field.Path) field.ErrorList,
) field.ErrorList {
	if errs := field.MaxItems(path, len(list), most); len(errs) > 0 {
		return errs
	}
	return append(field.Each(path, list, validate), repeatedKeys(list, path, key)...)
}

// validateItems validates each item of a list, and none of a list that is too long, which a declared rule reports.
func validateItems[T any](
	list []T, most int, path *field.Path, validate func(*T, *field.Path) field.ErrorList,
) field.ErrorList {
	if len(list) > most {
		return nil
	}
	return field.Each(path, list, validate)
}

// repeatedKeys returns an error for each item that has the key of one before it.
func repeatedKeys[T any, K comparable](list []T, path *field.Path, key func(*T) K) (errs field.ErrorList) {
	seen := make(sets.Set[K], len(list))
	for i := range list {
		errs = append(errs, field.Unique(seen, path.Index(i), key(&list[i]))...)
	}
	return errs
}

func itself(name *string) string { return *name }

// The lengths to which keys of maps are shortened in the paths of errors.
const (
	maxAttributeKey = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
	maxCounterKey   = 63
)

// shortened returns a key with its middle left out if it is longer than most bytes.
func shortened(key string, most int) string {
	const left = "..."
	if len(key) <= most {
		return key
	}
	rest := most - len(left)
	return key[:(rest+1)/2] + left + key[len(key)-rest/2:]
}

// validateDriver validates the name of a driver, a subdomain that may have upper case letters.
func validateDriver(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := field.MaxLength(path, name, resourcev1.DriverNameMaxLength)
	return append(errs, field.Messages(path, name, names.IsDNS1123Subdomain(strings.ToLower(name)))...)
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
// Without a domain it is in the domain of the driver. Examples are model and dra.example.com/model; gpu-model is
// refused, because it is not a C identifier.
func validateAttributeName(name resourcev1.QualifiedName, path *field.Path) (errs field.ErrorList) {
	parts := strings.Split(string(name), "/")
	switch len(parts) {
	case 1:
		return validateIdentifier(parts[0], path)
	case 2:
		if parts[0] == "" {
			errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
		} else {
			errs = append(errs, validateDriver(path, parts[0])...)
		}
		if parts[1] == "" {
			return append(errs, field.Invalid(path, "", "the name must not be empty"))
		}
		return append(errs, validateIdentifier(parts[1], path)...)
	}
	return nil // kube-apiserver accepts other numbers of slashes
}

func validateIdentifier(name string, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.MaxLength(path, name, resourcev1.DeviceMaxIDLength)...)
	return append(errs, field.Messages(path, name, validation.IsCIdentifier(name))...)
}

// validateConfiguration validates a configuration of a driver. Opaque parameters are the only type of it; they may have most
// bytes.
func validateConfiguration(c *resourcev1.DeviceConfiguration, most int, path *field.Path) field.ErrorList {
	at := path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateLongDriver(at.Child("driver"), c.Opaque.Driver)
	return append(errs, validateData(&c.Opaque.Parameters, most, at.Child("parameters"))...)
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
	if object == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	_, ok := object.(map[string]any)
	return field.InvalidIf(!ok, path, "<value omitted>", "must be a valid JSON object")
}

// validateToleration validates the value of a toleration. Declared rules report an operator that is neither Exists
// nor Equal.
func validateToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	at := path.Child("value")
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		return field.InvalidIf(t.Value != "", at, t.Value, "must be empty for operator `Exists`")
	case resourcev1.DeviceTolerationOpEqual:
		return field.LabelValue(at, t.Value)
	}
	return nil
}

// taintEffects are the effects of a taint in the order in which errors list them.
var taintEffects = []resourcev1.DeviceTaintEffect{
	resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone,
}

// validateSkippedOperations validates the operations of the kubelet that devices do not need.
// If only NodePrepareResources were skipped, the kubelet would unprepare devices that it never prepared.
func validateSkippedOperations(list []resourcev1.SkipNodeOperation, path *field.Path) field.ErrorList {
	wrong := slices.Contains(list, resourcev1.SkipNodeOperationNodePrepareResources) &&
		!slices.Contains(list, resourcev1.SkipNodeOperationNodeUnprepareResources) &&
		!slices.Contains(list, resourcev1.SkipNodeOperationAll)
	return field.InvalidIf(wrong, path, list, "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped")
}

// sortedKeys returns the names in a map in order, so that errors have the same order each time.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
