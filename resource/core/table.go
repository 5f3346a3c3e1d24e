package core

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/keelson-dev/keelson/registry"
)

// Unknown, None and Unset are what tables print where there is nothing to print.
const (
	Unknown = "<unknown>"
	None    = "<none>"
	Unset   = "<unset>"
)

// Columns that many tables begin or end with. Their descriptions are those of
// the fields, as kube-apiserver gives them.
var (
	NameColumn = metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}
	AgeColumn  = metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]}
)

// HumanDuration writes a duration as tables do, e.g. "5m", "3d2h".
func HumanDuration(d time.Duration) string { return duration.HumanDuration(d) }

// Age is a cell with the time since t.
func Age(t metav1.Time) any {
	if t.IsZero() {
		return Unknown
	}
	return registry.Elapsed{Since: t.Time}
}

// MicroAge is Age for a time of finer resolution.
func MicroAge(t metav1.MicroTime) any { return Age(metav1.Time{Time: t.Time}) }

// ContainerNames lists names and images of a pod's containers, separated by
// commas.
func ContainerNames(s *corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range s.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// OrNone is s, or <none> where it is empty.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// OrUnset is s, or <unset> where it is empty.
func OrUnset(s string) string {
	if s == "" {
		return Unset
	}
	return s
}

// FormatLabels writes a set of labels as tables do.
func FormatLabels(labels map[string]string) string {
	return OrNone(metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels}))
}
