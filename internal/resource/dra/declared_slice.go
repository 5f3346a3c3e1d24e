package dra

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// slice applies the declared rules of slices. old is nil on create. partitionTypes reports whether the gate
// DRAPartitionableDevicesType is on.
func (d *declared) slice(s, old *resourcev1.ResourceSliceSpec, partitionTypes bool) {
	path, before := field.NewPath("spec"), ptr.Deref(old, resourcev1.ResourceSliceSpec{})
	at := path.Child("devices")
	if !d.kept(s.Devices, before.Devices, old != nil) {
		for i := range s.Devices {
			d.device(&s.Devices[i], at.Index(i))
		}
	}
	at = path.Child("sharedCounters")
	if !d.kept(s.SharedCounters, before.SharedCounters, old != nil) &&
		d.atMost(resourcev1.ResourceSliceMaxCounterSets, len(s.SharedCounters), at) {
		same := func(a, b *resourcev1.CounterSet) bool { return a.Name == b.Name }
		unique(d, at, s.SharedCounters, same, whole)
		matched(d, at, s.SharedCounters, before.SharedCounters, same, d.counterSet)
	}
	if at := path.Child("partitionTypeAttribute"); !d.kept(s.PartitionTypeAttribute, before.PartitionTypeAttribute, old != nil) {
		partitionType(d, s.PartitionTypeAttribute, partitionTypes, at)
	}
	if at := path.Child("skipNodeOperations"); !d.kept(s.SkipNodeOperations, before.SkipNodeOperations, old != nil) {
		d.skippedOperations(s.SkipNodeOperations, before.SkipNodeOperations, at)
	}
}

// partitionType applies the rules of the name of the attribute that has the type of a partition.
func partitionType[T ~string](d *declared, name *T, allowed bool, path *field.Path) {
	switch {
	case name == nil:
	case !allowed:
		d.errs = append(d.errs, field.Forbidden(path, ""))
	default:
		apply(d, path, name, validate.ResourceFullyQualifiedName[T])
	}
}

func (d *declared) counterSet(c, old *resourcev1.CounterSet, path *field.Path) {
	if old == nil { // otherwise it is the same
		required(d, path.Child("name"), c.Name, validate.ShortName[string])
	}
	d.counters(c.Counters, part(old, func(c *resourcev1.CounterSet) map[string]resourcev1.Counter { return c.Counters }),
		old != nil, path.Child("counters"))
}

// counters applies the rules of the names of counters. known reports whether there are old counters.
// A name that the old counters have is not validated again.
func (d *declared) counters(counters, old map[string]resourcev1.Counter, known bool, path *field.Path) {
	switch {
	case d.kept(counters, old, known):
	case len(counters) == 0:
		d.errs = append(d.errs, field.Required(path, ""))
	default:
		for _, name := range sortedKeys(counters) {
			if _, kept := old[name]; !kept {
				apply(d, path, &name, validate.ShortName[string])
			}
		}
	}
}

// device applies the rules of a device. If one device of a slice has changed, they apply to all devices of the
// slice.
func (d *declared) device(dev *resourcev1.Device, path *field.Path) {
	for _, name := range sortedKeys(dev.Attributes) {
		a := dev.Attributes[name]
		exactlyOneOf(d, path.Child("attributes").Key(string(name)), attributeValues(&a))
	}
	at := path.Child("consumesCounters")
	if d.atMost(resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, len(dev.ConsumesCounters), at) {
		unique(d, at, dev.ConsumesCounters,
			func(a, b *resourcev1.DeviceCounterConsumption) bool { return a.CounterSet == b.CounterSet }, whole)
		for i := range dev.ConsumesCounters {
			d.consumption(&dev.ConsumesCounters[i], at.Index(i))
		}
	}
	for i := range dev.Taints {
		d.effect(dev.Taints[i].Effect, path.Child("taints").Index(i).Child("effect"))
	}
	d.atMost(resourcev1.BindingConditionsMaxSize, len(dev.BindingConditions), path.Child("bindingConditions"))
	d.atMost(resourcev1.BindingFailureConditionsMaxSize, len(dev.BindingFailureConditions),
		path.Child("bindingFailureConditions"))
	for _, name := range sortedKeys(dev.NodeAllocatableResources) {
		if m := dev.NodeAllocatableResources[name].Mapping; m != nil {
			exactlyOneOf(d, path.Child("nodeAllocatableResources").Key(string(name)).Child("mapping"),
				[]member{{"capacityKey", m.CapacityKey != nil}, {"deviceMultiplier", m.DeviceMultiplier != nil}})
		}
	}
}

func (d *declared) consumption(c *resourcev1.DeviceCounterConsumption, path *field.Path) {
	required(d, path.Child("counterSet"), c.CounterSet, validate.ShortName[string])
	d.counters(c.Counters, nil, false, path.Child("counters"))
	at := path.Child("compatibilityGroups")
	if d.atMost(resourcev1.DeviceCompatibilityGroupsMaxSize, len(c.CompatibilityGroups), at) {
		for i := range c.CompatibilityGroups {
			apply(d, at.Index(i), &c.CompatibilityGroups[i], validate.ShortName[string])
		}
		unique(d, at, c.CompatibilityGroups, equal, whole)
	}
}

// effect applies the rules of the effect of a taint.
func (d *declared) effect(effect resourcev1.DeviceTaintEffect, path *field.Path) {
	required(d, path, effect, oneOf(taintEffects...))
}

// A member is a field of which one or more others may not be set at the same time.
type member struct {
	name string
	set  bool
}

// attributeValues returns the values that an attribute can have.
func attributeValues(a *resourcev1.DeviceAttribute) []member {
	return []member{
		{"int", a.IntValue != nil}, {"bool", a.BoolValue != nil},
		{"string", a.StringValue != nil}, {"version", a.VersionValue != nil},
		{"ints", len(a.IntValues) > 0}, {"bools", len(a.BoolValues) > 0},
		{"strings", len(a.StringValues) > 0}, {"versions", len(a.VersionValues) > 0},
	}
}

// exactlyOneOf requires that one of the members is set.
func exactlyOneOf(d *declared, path *field.Path, members []member) {
	all := make([]string, len(members))
	var set []string
	for i, m := range members {
		all[i] = "`" + m.name + "`"
		if m.set {
			set = append(set, m.name)
		}
	}
	switch names := strings.Join(all, ", "); len(set) {
	case 0:
		d.errs = append(d.errs, field.Invalid(path, "", "must specify one of: "+names))
	case 1:
	default:
		d.errs = append(d.errs,
			field.Invalid(path, "{"+strings.Join(set, ", ")+"}", "must specify exactly one of: "+names))
	}
}
