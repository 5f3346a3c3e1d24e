package scheduling

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// A class of a user has no name with systemPrefix and no value above highestUserPriority, so that no pod of a
// user preempts the components of the cluster.
const (
	systemPrefix        = "system-"
	highestUserPriority = 1000000000
)

// systemClasses are the values of the classes that every cluster has.
var systemClasses = map[string]int32{
	"system-cluster-critical": 2 * highestUserPriority,
	"system-node-critical":    2*highestUserPriority + 1000,
}

// validateClass validates a new class. A system class may only be created as it is defined, which lets a server
// create it again after somebody has removed it from the store. Negative values are allowed.
func validateClass(c *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	switch {
	case strings.HasPrefix(c.Name, systemPrefix):
		if err := validateSystemClass(c); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+err.Error()))
		}
	case c.Value > highestUserPriority:
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestUserPriority)))
	}
	return append(errs, validatePreemption(c.PreemptionPolicy)...)
}

// validateSystemClass returns an error if a class has the name of a system class, but other
// values.
func validateSystemClass(c *schedulingv1.PriorityClass) error {
	value, known := systemClasses[c.Name]
	switch {
	case !known:
		return fmt.Errorf("%s is not a known system priority class", c.Name)
	case c.Value != value:
		return fmt.Errorf("value of %s PriorityClass must be %d", c.Name, value)
	case c.GlobalDefault:
		return fmt.Errorf("globalDefault of %s PriorityClass must be false", c.Name)
	}
	return nil
}

func validatePreemption(p *corev1.PreemptionPolicy) field.ErrorList {
	if p == nil {
		return nil
	}
	return field.RequiredOneOf(field.NewPath("preemptionPolicy"), *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
}

// forbidSystemClassDeletion returns an error for the system classes.
func forbidSystemClassDeletion(name string) error {
	if _, ok := systemClasses[name]; !ok {
		return nil
	}
	return kerrors.NewForbidden(schedulingv1.Resource("priorityclasses"), name,
		errors.New("this is a system priority class and cannot be deleted"))
}
