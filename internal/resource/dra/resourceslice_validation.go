package dra

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// sliceValidation validates a slice.
type sliceValidation struct {
	policies policies
	// old are the devices of the old slice by name, nil on create.
	old       map[string]*resourcev1.Device
	perDevice bool // each device says where it is available
}

// validateSliceSpec validates the spec of a slice; old is nil on create.
func validateSliceSpec(s, old *resourcev1.ResourceSliceSpec, gates features.Gates) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateDriver(path.Child("driver"), s.Driver)
	errs = append(errs, validateSlicePool(&s.Pool, path.Child("pool"))...)
	if old != nil {
		// A slice stays in its pool and on its node. A kubelet may only write the slices of its own node, which
		// spec.nodeName names.
		errs = append(errs, declare.Immutable(s.Pool.Name, old.Pool.Name, path.Child("pool", "name"))...)
		errs = append(errs, declare.Immutable(s.Driver, old.Driver, path.Child("driver"))...)
		errs = append(errs, declare.Immutable(s.NodeName, old.NodeName, path.Child("nodeName"))...)
	}
	errs = append(errs, validateSliceNodes(s, path)...)
	errs = append(errs, field.InvalidIf(s.SharedCounters != nil && s.Devices != nil, path, "",
		"only one of `sharedCounters` or `devices` is allowed")...)
	v := &sliceValidation{
		policies: policies{fractional: gates.Enabled(features.DRAFractionalCapacityRange)},
		old:      devicesByName(old), perDevice: isTrue(s.PerDeviceNodeSelection),
	}
	errs = append(errs, validateList(s.Devices, maxDevices(s.Devices), path.Child("devices"),
		func(d *resourcev1.Device) string { return d.Name }, v.validateDevice)...)
	errs = append(errs, validateItems(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, path.Child("sharedCounters"),
		func(c *resourcev1.CounterSet, at *field.Path) field.ErrorList {
			return field.MaxItems(at.Child("counters"), len(c.Counters), resourcev1.ResourceSliceMaxCountersPerCounterSet)
		})...)
	if s.PartitionTypeAttribute != nil {
		errs = append(errs, validatePartitionType(s, path)...)
	}
	return append(errs, validateSkippedOperations(s.SkipNodeOperations, path.Child("skipNodeOperations"))...)
}

// devicesByName returns the devices of a slice. If several have the same name, it has the first.
func devicesByName(s *resourcev1.ResourceSliceSpec) map[string]*resourcev1.Device {
	if s == nil {
		return nil
	}
	all := make(map[string]*resourcev1.Device, len(s.Devices))
	for i := range slices.Backward(s.Devices) {
		all[s.Devices[i].Name] = &s.Devices[i]
	}
	return all
}

// validatePartitionType validates that the devices that consume counters have the attribute with the type of a partition, and
// that there are such devices.
func validatePartitionType(s *resourcev1.ResourceSliceSpec, path *field.Path) (errs field.ErrorList) {
	consumes := func(d resourcev1.Device) bool { return len(d.ConsumesCounters) > 0 }
	name := string(*s.PartitionTypeAttribute)
	if !slices.ContainsFunc(s.Devices, consumes) {
		return field.ErrorList{field.Invalid(path.Child("partitionTypeAttribute"), name,
			"may only be set on a slice which declares devices that consume counters")}
	}
	// No device has an attribute with an invalid name, which has an error of its own.
	if len(validateAttributeName(resourcev1.QualifiedName(name), nil)) > 0 || !strings.Contains(name, "/") {
		return nil
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		if !consumes(*d) {
			continue
		}
		at := path.Child("devices").Index(i).Child("attributes").Key(name)
		a, ok := d.Attributes[resourcev1.QualifiedName(name)]
		if !ok { // an attribute in the domain of the driver may leave it out
			a, ok = d.Attributes[resourcev1.QualifiedName(strings.TrimPrefix(name, s.Driver+"/"))]
		}
		switch {
		case !ok:
			errs = append(errs, field.Required(at,
				"device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"))
		case a.StringValue == nil:
			errs = append(errs, field.Invalid(at, declare.Internal(a),
				"must be a string value because `partitionTypeAttribute` names this attribute"))
		}
	}
	return errs
}

// maxDevices returns how many devices may be in a list. Taints, counters and lists of values make devices larger.
func maxDevices(list []resourcev1.Device) int {
	for i := range list {
		if len(list[i].Taints)+len(list[i].ConsumesCounters) > 0 || usesLists(&list[i]) {
			return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	return resourcev1.ResourceSliceMaxDevices
}

// validateSlicePool validates the pool. A driver increments the generation in all slices of the pool when it
// changes one of them; readers use the slices with the highest generation, and wait until they have seen as many
// as resourceSliceCount.
func validateSlicePool(p *resourcev1.ResourcePool, path *field.Path) field.ErrorList {
	return field.Join(
		validatePool(path.Child("name"), p.Name),
		field.InvalidIf(p.ResourceSliceCount <= 0, path.Child("resourceSliceCount"), p.ResourceSliceCount,
			"must be greater than zero"),
		field.InvalidIf(p.Generation < 0, path.Child("generation"), p.Generation, "must be greater than or equal to zero"),
	)
}

// nodeChoice collects which of the fields that say where devices are available are set.
type nodeChoice struct {
	set  []string
	errs field.ErrorList
}

// name adds the name of a node; empty is the detail of the error for an empty one.
func (c *nodeChoice) name(name *string, empty string, path *field.Path) {
	switch {
	case name == nil:
	case *name == "":
		c.errs = append(c.errs, field.Invalid(path, "", empty))
	default:
		c.set = append(c.set, "`nodeName`")
		c.errs = append(c.errs, field.DNSSubdomain(path, *name)...)
	}
}

func (c *nodeChoice) selector(s *corev1.NodeSelector, path *field.Path) {
	if s == nil {
		return
	}
	c.set = append(c.set, "`nodeSelector`")
	c.errs = append(c.errs, core.ValidateNodeSelector(s, path)...)
	c.errs = append(c.errs, core.ValidateNodeSelectorValues(s, path)...)
}

// flag adds a field that can only be true.
func (c *nodeChoice) flag(name string, value *bool, path *field.Path) {
	switch {
	case value == nil:
	case *value:
		c.set = append(c.set, "`"+name+"`")
	default:
		c.errs = append(c.errs, field.Invalid(path.Child(name), false, "must be either unset or set to true"))
	}
}

// require adds an error unless exactly one field is set.
func (c *nodeChoice) require(missing, several string, path *field.Path) {
	switch len(c.set) {
	case 0:
		c.errs = append(c.errs, field.Required(path, missing))
	case 1:
	default:
		c.errs = append(c.errs, field.Invalid(path, "{"+strings.Join(c.set, ", ")+"}", several))
	}
}

// validateSliceNodes requires exactly one field that says on which nodes the devices are.
func validateSliceNodes(s *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	var c nodeChoice
	c.name(s.NodeName, "must be either unset or set to a non-empty string", path.Child("nodeName"))
	at := path.Child("nodeSelector")
	c.selector(s.NodeSelector, at)
	if s.NodeSelector != nil && len(s.NodeSelector.NodeSelectorTerms) != 1 {
		c.errs = append(c.errs, field.Invalid(at.Child("nodeSelectorTerms"),
			declare.Internal(s.NodeSelector.NodeSelectorTerms), "must have exactly one node selector term"))
	}
	c.flag("allNodes", s.AllNodes, path)
	c.flag("perDeviceNodeSelection", s.PerDeviceNodeSelection, path)
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	c.require(one, one+", but multiple fields are set", path)
	return c.errs
}

// validateDeviceNodes requires such a field of a device if the slice has perDeviceNodeSelection, and otherwise
// none. Unlike in a slice, the number of terms of the selector is not checked, although its documentation requires
// one.
func validateDeviceNodes(d *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	if !perDevice {
		if d.NodeName == nil && d.NodeSelector == nil && d.AllNodes == nil {
			return nil
		}
		return field.ErrorList{field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if "+
			"`perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
	}
	var c nodeChoice
	c.name(d.NodeName, "must not be empty", path.Child("nodeName"))
	c.selector(d.NodeSelector, path.Child("nodeSelector"))
	c.flag("allNodes", d.AllNodes, path)
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set " +
		"to true in the ResourceSlice spec"
	c.require(one, one, path)
	return c.errs
}

// validateDevice validates a device. Capacities and taints that a device of the same name already had are not
// validated again; their limits may have changed since then.
func (v *sliceValidation) validateDevice(d *resourcev1.Device, path *field.Path) field.ErrorList {
	errs := field.DNSLabel(path.Child("name"), d.Name)
	n := len(d.Attributes) + len(d.Capacity)
	errs = append(errs, field.InvalidIf(n > maxAttributes, path, n,
		fmt.Sprintf("the total number of attributes and capacities must not exceed %d", maxAttributes))...)
	const maxValues = resourcev1.ResourceSliceMaxAttributeValuesPerDevice
	n = numberOfValues(d)
	errs = append(errs, field.InvalidIf(n > maxValues, path, n,
		fmt.Sprintf("the total number of attribute values must not exceed %d", maxValues))...)
	at := path.Child("attributes")
	for _, name := range sortedKeys(d.Attributes) {
		a := d.Attributes[name]
		errs = append(errs, validateAttributeName(name, at)...)
		errs = append(errs, validateAttribute(&a, at.Key(shortened(string(name), maxAttributeKey)))...)
	}
	old := v.old[d.Name]
	if old == nil || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		errs = append(errs, v.policies.validateCapacities(d, path.Child("capacity"))...)
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		errs = append(errs, validateTaints(d.Taints, path.Child("taints"))...)
	}
	errs = append(errs, validateItems(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		path.Child("consumesCounters"), func(c *resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
			return field.MaxItems(at.Child("counters"), len(c.Counters),
				resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption)
		})...)
	errs = append(errs, validateDeviceNodes(d, v.perDevice, path)...)
	errs = append(errs, validateBindingConditions(d.BindingConditions, d.BindingFailureConditions, path)...)
	return append(errs, validateNodeResources(d, path.Child("nodeAllocatableResources"))...)
}

// numberOfValues returns how many values all attributes of a device have. An attribute that is not a list counts as one.
func numberOfValues(d *resourcev1.Device) (n int) {
	for _, a := range d.Attributes {
		n += max(1, len(a.BoolValues)+len(a.IntValues)+len(a.StringValues)+len(a.VersionValues))
	}
	return n
}

// validateNodeResources validates what a device takes from the resources of its node.
func validateNodeResources(d *resourcev1.Device, path *field.Path) (errs field.ErrorList) {
	for _, name := range sortedKeys(d.NodeAllocatableResources) {
		r, at := d.NodeAllocatableResources[name], path.Key(string(name))
		known := name == corev1.ResourceCPU || name == corev1.ResourceMemory ||
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		errs = append(errs, field.InvalidIf(!known, at, name, "must be a node allocatable resource name")...)
		errs = append(errs, field.RequiredIf(r.Mapping == nil && r.Overhead == nil, at,
			"at least one of mapping or overhead must be set")...)
		if r.Mapping != nil {
			errs = append(errs, validateMapping(r.Mapping, d.Capacity, at.Child("mapping"))...)
		}
		errs = append(errs, field.IfPresent(at.Child("overhead"), r.Overhead, validateOverhead)...)
	}
	return errs
}

// validateMapping validates how the number of devices, or one of their capacities, is converted to a resource of the node.
func validateMapping(
	m *resourcev1.NodeAllocatableMapping, capacities map[resourcev1.QualifiedName]resourcev1.DeviceCapacity, path *field.Path,
) (errs field.ErrorList) {
	key, factor := path.Child("capacityKey"), path.Child("capacityMultiplier")
	if m.CapacityKey != nil {
		if _, ok := capacities[*m.CapacityKey]; *m.CapacityKey == "" {
			errs = append(errs, field.Invalid(key, "", "capacityKey must not be an empty string"))
		} else if !ok {
			errs = append(errs, field.NotFound(key, *m.CapacityKey))
		}
		errs = append(errs, field.RequiredIf(m.CapacityMultiplier == nil, factor,
			"capacityMultiplier is required when capacityKey is set")...)
		errs = append(errs, field.Optional(factor, m.CapacityMultiplier, positive)...)
	}
	errs = append(errs, field.Optional(path.Child("deviceMultiplier"), m.DeviceMultiplier, positive)...)
	return append(errs, field.RequiredIf(m.CapacityMultiplier != nil && m.CapacityKey == nil, key,
		"capacityKey is required when capacityMultiplier is set")...)
}

func positive(path *field.Path, q resource.Quantity) field.ErrorList {
	return field.InvalidIf(q.Sign() <= 0, path, q.String(), "must be positive")
}

// validateOverhead validates what each pod or container with the device needs in addition to the device itself.
func validateOverhead(o *resourcev1.NodeAllocatableOverhead, path *field.Path) (errs field.ErrorList) {
	if o.PerPod == nil && o.PerContainer == nil {
		return field.ErrorList{field.Invalid(path, "", "at least one of perPod or perContainer must be set")}
	}
	notNegative := func(path *field.Path, q resource.Quantity) field.ErrorList {
		return field.InvalidIf(q.Sign() < 0, path, q.String(), "must be non-negative")
	}
	errs = append(errs, field.Optional(path.Child("perPod"), o.PerPod, notNegative)...)
	return append(errs, field.Optional(path.Child("perContainer"), o.PerContainer, notNegative)...)
}

// semanticVersion is the form of versions that semver.org recommends.
var semanticVersion = field.Pattern(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// validateAttribute validates the values of an attribute. A declared rule requires that it has a value.
func validateAttribute(a *resourcev1.DeviceAttribute, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.Optional(path.Child("string"), a.StringValue, validateText)...)
	errs = append(errs, field.Optional(path.Child("version"), a.VersionValue, validateVersion)...)
	errs = append(errs, notEmptyList(path.Child("bools"), a.BoolValues)...)
	errs = append(errs, notEmptyList(path.Child("ints"), a.IntValues)...)
	errs = append(errs, notEmptyList(path.Child("strings"), a.StringValues)...)
	errs = append(errs, field.EachValue(path.Child("strings"), a.StringValues, validateText)...)
	errs = append(errs, notEmptyList(path.Child("versions"), a.VersionValues)...)
	return append(errs, field.EachValue(path.Child("versions"), a.VersionValues, validateVersion)...)
}

func notEmptyList[T any](path *field.Path, list []T) field.ErrorList {
	return field.InvalidIf(list != nil && len(list) == 0, path, list, "must not be empty if specified")
}

func validateText(path *field.Path, text string) field.ErrorList {
	return field.MaxLength(path, text, resourcev1.DeviceAttributeMaxValueLength)
}

func validateVersion(path *field.Path, version string) field.ErrorList {
	errs := field.InvalidIf(!semanticVersion().MatchString(version), path, version,
		"must be a string compatible with semver.org spec 2.0.0")
	return append(errs, validateText(path, version)...)
}

func validateTaints(list []resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	if errs := field.MaxItems(path, len(list), resourcev1.DeviceTaintsMaxLength); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, validateTaint(list[i].Key, list[i].Value, path.Index(i))...)
	}
	return errs
}

// validateTaint validates the key and the value of a taint.
func validateTaint(key, value string, path *field.Path) field.ErrorList {
	return field.Join(field.LabelKey(path.Child("key"), key), field.LabelValue(path.Child("value"), value))
}

// validateBindingConditions validates the conditions that a device must have, and those that it must not have, before a
// pod is bound to it.
// The scheduler waits until all wanted conditions are true, and gives up if one of the others is (KEP-5007). Both
// lists have to be set, so that the scheduler does not wait for a device that has failed.
func validateBindingConditions(wanted, failures []string, path *field.Path) field.ErrorList {
	at, failed := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	validate := func(c *string, at *field.Path) field.ErrorList { return field.LabelKey(at, *c) }
	errs := validateItems(wanted, resourcev1.BindingConditionsMaxSize, at, validate)
	errs = append(errs, validateItems(failures, resourcev1.BindingFailureConditionsMaxSize, failed, validate)...)
	errs = append(errs, repeatedKeys(wanted, at, itself)...)
	for i, c := range failures {
		errs = append(errs, field.DuplicateIf(slices.Contains(failures[:i], c), failed.Index(i), c)...)
		errs = append(errs, field.InvalidIf(slices.Contains(wanted, c), failed.Index(i), c,
			"bindingFailureConditions must not overlap with bindingConditions")...)
	}
	errs = append(errs, field.InvalidIf(len(wanted) == 0 && len(failures) > 0, at, wanted,
		"bindingConditions are required to use bindingFailureConditions")...)
	return append(errs, field.InvalidIf(len(wanted) > 0 && len(failures) == 0, failed, failures,
		"bindingFailureConditions are required to use bindingConditions")...)
}
