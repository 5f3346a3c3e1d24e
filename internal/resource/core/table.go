package core

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Unknown, None and Unset are the texts of cells without a value.
const (
	Unknown = "<unknown>"
	None    = "<none>"
	Unset   = "<unset>"
)

// NameColumn and AgeColumn are in many tables. Their descriptions are those of the fields, as
// in kube-apiserver.
var (
	NameColumn = metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}
	AgeColumn = metav1.TableColumnDefinition{Name: "Age", Type: "string",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]}
)

// HumanDuration returns a duration as in tables, for example "5m" or "3d2h".
func HumanDuration(d time.Duration) string { return duration.HumanDuration(d) }

// Age returns a cell with the time since t.
func Age(t metav1.Time) any {
	if t.IsZero() {
		return Unknown
	}
	return registry.Elapsed{Since: t.Time}
}

// MicroAge is Age for a MicroTime.
func MicroAge(t metav1.MicroTime) any { return Age(metav1.Time(t)) }

// ContainerNames returns the names and the images of a pod's containers, separated by commas.
func ContainerNames(s *corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range s.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// OrNone returns s, or <none> if it is empty.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// OrUnset returns s, or <unset> if it is empty.
func OrUnset(s string) string {
	if s == "" {
		return Unset
	}
	return s
}

// FormatLabels returns labels as in tables.
func FormatLabels(labels map[string]string) string {
	return OrNone(metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels}))
}
