package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type candidate = coordinationv1beta1.LeaseCandidate

func leaseCandidate() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: "coordination.k8s.io", Package: "coordination", Resource: "leasecandidates",
			Name: "LeaseCandidate", Namespaced: true,
		},
		Versions: []registry.Version{
			declare.Version[candidate]("v1beta1", nil),
			declare.SameMessage[coordinationv1alpha2.LeaseCandidate, candidate]("v1alpha2", nil),
		},
		Storage:  registry.Storage{Version: "v1beta1", Path: "leasecandidates"},
		Requests: registry.Requests{CreateOnUpdate: true},
		Metadata: registry.Metadata{
			// Names may have capitals and underscores, for example Scheduler_1: the name of the elected candidate
			// becomes the holderIdentity of the Lease.
			ValidateName: func(name string, _ bool) []string { return validation.IsConfigMapKey(name) },
		},
		Strategy: registry.Strategy[*candidate]{
			Validate: func(c *candidate) field.ErrorList {
				return validateCandidate(&c.Spec, field.NewPath("spec"))
			},
			ValidateUpdate: func(c, old *candidate) field.ErrorList {
				return declare.Immutable(c.Spec.LeaseName, old.Spec.LeaseName, field.NewPath("spec", "leaseName"))
			},
		}.Untyped(),
		Table: registry.Table[*candidate]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("LeaseName", "string", coordinationv1alpha2.LeaseCandidateSpec{}.SwaggerDoc()["leaseName"]),
				table.Column("BinaryVersion", "string", ""),
				table.Column("EmulationVersion", "string", ""),
				table.Age,
			},
			Cells: func(c *candidate) []any {
				return []any{c.Name, c.Spec.LeaseName, c.Spec.BinaryVersion, c.Spec.EmulationVersion,
					table.AgeOf(c.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// validateCandidate validates a spec. A binary can emulate an older version of Kubernetes, never a newer one, so
// binaryVersion is not less than emulationVersion. The strategy OldestEmulationVersion elects by the emulated
// version, which is then required. An update to another lease is refused elsewhere: leaseName is immutable.
func validateCandidate(s *coordinationv1beta1.LeaseCandidateSpec, path *field.Path) field.ErrorList {
	errs := field.NotEmpty(path.Child("leaseName"), s.LeaseName)
	emulated, err := parseVersion(s.EmulationVersion, path.Child("emulationVersion"))
	errs = append(errs, err...)
	errs = append(errs, field.NotEmpty(path.Child("binaryVersion"), s.BinaryVersion)...)
	binary, err := parseVersion(s.BinaryVersion, path.Child("binaryVersion"))
	errs = append(errs, err...)
	errs = append(errs, field.InvalidIf(s.BinaryVersion != "" && s.EmulationVersion != "" && binary.LessThan(emulated),
		path.Child("binaryVersion"), s.BinaryVersion, "must be greater than or equal to `emulationVersion`")...)
	if s.Strategy == "" {
		return append(errs, field.Required(path.Child("strategy"), ""))
	}
	errs = append(errs, field.RequiredIf(s.Strategy == coordinationv1.OldestEmulationVersion &&
		emulated.EqualTo(zeroVersion()), path.Child("emulationVersion"),
		"must be specified when `strategy` is 'OldestEmulationVersion'")...)
	return append(errs, validateStrategy(path.Child("strategy"), s.Strategy)...)
}

func zeroVersion() *version.Version { return version.MajorMinor(0, 0).WithPatch(0) }

// parseVersion parses a semantic version. An empty or invalid one is 0.0.0.
// ParseSemantic accepts v1.2.3 and spaces around a version. The API documents versions without both, so they are
// refused here.
func parseVersion(text string, path *field.Path) (*version.Version, field.ErrorList) {
	if text == "" {
		return zeroVersion(), nil
	}
	v, err := version.ParseSemantic(text)
	if err != nil || strings.HasPrefix(text, "v") || strings.TrimSpace(text) != text {
		return zeroVersion(), field.ErrorList{field.Invalid(path, text, "must be a valid semantic version")}
	}
	return v, nil
}

// validateStrategy validates how a leader is elected. A name without a domain is one of Kubernetes. kube-apiserver
// reports errors below a second "strategy" in the path.
func validateStrategy(path *field.Path, s coordinationv1.CoordinatedLeaseStrategy) field.ErrorList {
	path = path.Child("strategy")
	if !strings.Contains(string(s), "/") {
		return field.OneOf(path, s, coordinationv1.OldestEmulationVersion)
	}
	return field.LabelKey(path, s)
}
