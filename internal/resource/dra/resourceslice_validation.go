package dra

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func validateSliceSpec(s *resourcev1.ResourceSliceSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateDriver(path.Child("driver"), s.Driver)
	errs = append(errs, validateSlicePool(&s.Pool, path.Child("pool"))...)
	errs = append(errs, validateSliceNodes(s, path)...)
	errs = append(errs, field.InvalidIf(s.SharedCounters != nil && s.Devices != nil, path, "",
		"only one of `sharedCounters` or `devices` is allowed")...)
	errs = append(errs, validateList(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, path.Child("sharedCounters"),
		func(c *resourcev1.CounterSet) string { return c.Name }, validateCounterSet)...)
	perDevice := s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection
	return append(errs, validateList(s.Devices, maxDevices(s.Devices), path.Child("devices"),
		func(d *resourcev1.Device) string { return d.Name },
		func(d *resourcev1.Device, at *field.Path) field.ErrorList { return validateDevice(d, perDevice, at) })...)
}

// maxDevices returns how many devices may be in a list. Taints and counters make devices larger.
func maxDevices(list []resourcev1.Device) int {
	for i := range list {
		if len(list[i].Taints)+len(list[i].ConsumesCounters) > 0 {
			return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	return resourcev1.ResourceSliceMaxDevices
}

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

func validateCounterSet(c *resourcev1.CounterSet, path *field.Path) field.ErrorList {
	errs := field.NotEmptyAnd(path.Child("name"), c.Name, field.DNSLabel)
	return append(errs,
		validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, path.Child("counters"))...)
}

func validateCounters(counters map[string]resourcev1.Counter, most int, path *field.Path) field.ErrorList {
	if len(counters) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := field.MaxItems(path, len(counters), most)
	for _, name := range sortedKeys(counters) {
		errs = append(errs, field.DNSLabel(path, name)...)
	}
	return errs
}

func validateDevice(d *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	errs := field.DNSLabel(path.Child("name"), d.Name)
	n := len(d.Attributes) + len(d.Capacity)
	errs = append(errs, field.InvalidIf(n > maxAttributes, path, n,
		"the total number of attributes and capacities must not exceed 32")...)
	at := path.Child("attributes")
	for _, name := range sortedKeys(d.Attributes) {
		a := d.Attributes[name]
		errs = append(errs, validateAttributeName(name, at)...)
		errs = append(errs, validateAttribute(&a, at.Key(string(name)))...)
	}
	errs = append(errs, validateCapacities(d, path.Child("capacity"))...)
	errs = append(errs, validateTaints(d.Taints, path.Child("taints"))...)
	errs = append(errs, validateDeviceNodes(d, perDevice, path)...)
	errs = append(errs, validateList(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		path.Child("consumesCounters"), func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		validateConsumption)...)
	return append(errs, validateBindingConditions(d.BindingConditions, d.BindingFailureConditions, path)...)
}

func validateConsumption(c *resourcev1.DeviceCounterConsumption, path *field.Path) field.ErrorList {
	errs := field.NotEmptyAnd(path.Child("counterSet"), c.CounterSet, field.DNSLabel)
	return append(errs, validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption,
		path.Child("counters"))...)
}

// semanticVersion is the form of versions that semver.org recommends.
var semanticVersion = field.Pattern(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// validateAttribute validates an attribute, which has one value.
func validateAttribute(a *resourcev1.DeviceAttribute, path *field.Path) (errs field.ErrorList) {
	n := 0
	for _, set := range []bool{
		a.IntValue != nil, a.BoolValue != nil, a.StringValue != nil, a.VersionValue != nil,
		a.IntValues != nil, a.BoolValues != nil, a.StringValues != nil, a.VersionValues != nil,
	} {
		if set {
			n++
		}
	}
	const one, most = "exactly one value must be specified", resourcev1.DeviceAttributeMaxValueLength
	if s := a.StringValue; s != nil && len(*s) > most {
		errs = append(errs, field.TooLong(path.Child("string"), "", most))
	}
	if s, at := a.VersionValue, path.Child("version"); s != nil {
		errs = append(errs, field.InvalidIf(!semanticVersion().MatchString(*s), at, *s,
			"must be a string compatible with semver.org spec 2.0.0")...)
		errs = append(errs, field.MaxLength(at, *s, most)...)
	}
	switch n {
	case 0:
		errs = append(errs, field.Invalid(path, "", one))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, declare.Internal(a), one))
	}
	return errs
}

func validateTaints(list []resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	if errs := field.MaxItems(path, len(list), resourcev1.DeviceTaintsMaxLength); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, validateTaint(list[i].Key, list[i].Value, path.Index(i))...)
		errs = append(errs, validateEffect(path.Index(i).Child("effect"), list[i].Effect)...)
	}
	return errs
}

// validateTaint validates the key and the value of a taint.
func validateTaint(key, value string, path *field.Path) field.ErrorList {
	return field.Join(field.LabelKey(path.Child("key"), key), field.LabelValue(path.Child("value"), value))
}

// validateBindingConditions validates the conditions that a device must have, and those that it must not have, before a
// pod is bound to it.
func validateBindingConditions(wanted, failures []string, path *field.Path) field.ErrorList {
	at, failed := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	validate := func(c *string, at *field.Path) field.ErrorList { return field.LabelKey(at, *c) }
	errs := validateList(wanted, resourcev1.BindingConditionsMaxSize, at, itself, validate)
	errs = append(errs, validateList(failures, resourcev1.BindingFailureConditionsMaxSize, failed, itself, validate)...)
	for i, c := range failures {
		errs = append(errs, field.InvalidIf(slices.Contains(wanted, c), failed.Index(i), c,
			"bindingFailureConditions must not overlap with bindingConditions")...)
	}
	errs = append(errs, field.InvalidIf(len(wanted) == 0 && len(failures) > 0, at, wanted,
		"bindingConditions are required to use bindingFailureConditions")...)
	return append(errs, field.InvalidIf(len(wanted) > 0 && len(failures) == 0, failed, failures,
		"bindingFailureConditions are required to use bindingConditions")...)
}
