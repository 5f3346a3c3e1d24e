// Package apiserverinternal declares the kinds of the internal.apiserver.k8s.io API group.
package apiserverinternal

import (
	"fmt"
	"slices"
	"strings"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{storageVersion()} }

func storageVersion() *registry.Kind {
	doc := internalv1alpha1.StorageVersionStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: "internal.apiserver.k8s.io", Package: "apiserverinternal", Resource: "storageversions",
			Name: "StorageVersion",
		},
		Versions: []registry.Version{declare.Version[internalv1alpha1.StorageVersion]("v1alpha1", nil)},
		Storage:  registry.Storage{Version: "v1alpha1", Path: "storageversions"},
		Metadata: registry.Metadata{
			ValidateName: validateName, OnUpdate: registry.MetaNothing, OnStatusUpdate: registry.MetaNothing,
		},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*internalv1alpha1.StorageVersion]{
			StatusKeepsMeta: true,
			ValidateStatusUpdate: func(v, _ *internalv1alpha1.StorageVersion) field.ErrorList {
				return validateStatus(&v.Status, field.NewPath("status"))
			},
		}.Untyped(),
		Table: registry.Table[*internalv1alpha1.StorageVersion]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("CommonEncodingVersion", "string", doc["commonEncodingVersion"]),
				table.Column("StorageVersions", "string", doc["storageVersions"]),
				table.Age,
			},
			Cells: func(v *internalv1alpha1.StorageVersion) []any {
				list := declare.Texts(v.Status.StorageVersions, func(s internalv1alpha1.ServerStorageVersion) string {
					return s.APIServerID + "=" + s.EncodingVersion
				})
				const most = 3
				return []any{v.Name, ptr.Deref(v.Status.CommonEncodingVersion, table.Unset),
					table.OrUnset(table.FirstOf(list, most, ",")), table.AgeOf(v.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// validateName requires the form <group>.<resource>.
// The group is what stands before the last dot, because a resource has no dot: rbac.authorization.k8s.io.roles. A
// name such as pods, without a group, is refused.
func validateName(name string, _ bool) []string {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return []string{"name must be in the form of <group>.<resource>"}
	}
	out := prefixed("the group segment ", validation.IsDNS1123Subdomain(name[:dot]))
	return append(out, prefixed("the resource segment ", validation.IsDNS1035Label(name[dot+1:]))...)
}

func prefixed(prefix string, messages []string) []string {
	return declare.Texts(messages, func(m string) string { return prefix + m })
}

// validateStatus validates what the API servers of a cluster report. The spec is empty, so the status is all that
// a StorageVersion says.
func validateStatus(s *internalv1alpha1.StorageVersionStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range s.StorageVersions {
		server, at := &s.StorageVersions[i], path.Child("storageVersions").Index(i)
		errs = append(errs, field.Unique(seen, at.Child("apiServerID"), server.APIServerID)...)
		errs = append(errs, validateServer(server, at)...)
	}
	errs = append(errs, validateCommon(s, path.Child("commonEncodingVersion"))...)
	return append(errs, validateConditions(s.Conditions, path)...)
}

// validateServer validates the versions of one API server.
func validateServer(s *internalv1alpha1.ServerStorageVersion, path *field.Path) field.ErrorList {
	errs := field.DNSSubdomain(path.Child("apiServerID"), s.APIServerID)
	check := func(at *field.Path, version string) {
		errs = append(errs, field.Joined(at, version, "", validateVersion(version))...)
	}
	check(path.Child("encodingVersion"), s.EncodingVersion)
	at := path.Child("decodableVersions")
	for i, v := range s.DecodableVersions {
		check(at.Index(i), v)
	}
	// A server must be able to read back what it writes, and what it serves.
	if !slices.Contains(s.DecodableVersions, s.EncodingVersion) {
		errs = append(errs, field.Invalid(at, s.DecodableVersions,
			"decodableVersions must include encodingVersion "+s.EncodingVersion))
	}
	at = path.Child("servedVersions")
	for i, v := range s.ServedVersions {
		check(at.Index(i), v)
		if !slices.Contains(s.DecodableVersions, v) {
			errs = append(errs, field.Invalid(at.Index(i), v, fmt.Sprintf(
				"individual served version : %s must be included in decodableVersions : %s", v, s.DecodableVersions)))
		}
	}
	return errs
}

// validateCommon requires that the common version is set if and only if all servers encode in the same one.
func validateCommon(s *internalv1alpha1.StorageVersionStatus, path *field.Path) field.ErrorList {
	var common *string
	for i := range s.StorageVersions {
		v := &s.StorageVersions[i].EncodingVersion
		if common != nil && *v != *common {
			common = nil
			break
		}
		common = v
	}
	// common is nil for no server and for servers that differ.
	switch set := s.CommonEncodingVersion; {
	case common == nil && set != nil:
		return field.ErrorList{field.Invalid(path, *set, "should be nil if servers do not agree on the same encoding "+
			"version, or if there is no server reporting the supported versions yet")}
	case common != nil && set == nil:
		return field.ErrorList{field.Invalid(path, set, "the common encoding version is "+*common)}
	case common != nil && *common != *set:
		return field.ErrorList{field.Invalid(path, *set, "the actual common encoding version is "+*common)}
	}
	return nil
}

// validateConditions reports errors at the indexes of the status itself, as kube-apiserver does.
func validateConditions(conditions []internalv1alpha1.StorageVersionCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	first := map[internalv1alpha1.StorageVersionConditionType]int{}
	for i := range conditions {
		c, at := &conditions[i], path.Index(i)
		if before, ok := first[c.Type]; ok {
			errs = append(errs, field.Invalid(at.Child("type"), string(c.Type), fmt.Sprintf(
				"the type of the condition is not unique, it also appears in conditions[%d]", before)))
		}
		first[c.Type] = i
		errs = append(errs, field.LabelKey(at.Child("type"), c.Type)...)
		errs = append(errs, field.LabelKey(at.Child("status"), c.Status)...)
		errs = append(errs, field.NotEmpty(at.Child("reason"), c.Reason)...)
		errs = append(errs, field.NotEmpty(at.Child("message"), c.Message)...)
	}
	return errs
}

// validateVersion returns what is wrong with a version with an optional group before it.
// For example, v1 and apps/v1 are accepted. a/b/v1 has too many parts, and /v1 and apps/ have an empty one.
func validateVersion(text string) []string {
	group, version, hasGroup := strings.Cut(text, "/")
	var messages []string
	switch {
	case strings.Contains(version, "/"):
		return []string{"an apiVersion is " + validation.RegexError(
			"a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an "+
				"alphabetic character, and end with an alphanumeric character",
			"[a-z]([-a-z0-9]*[a-z0-9])?", "my-name", "abc-123") +
			" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"}
	case !hasGroup:
		version = group
	case group == "":
		messages = []string{"group part: " + validation.EmptyError()}
	default:
		messages = prefixed("group part: ", validation.IsDNS1123Subdomain(group))
	}
	if version == "" {
		return append(messages, "version part: "+validation.EmptyError())
	}
	return append(messages, prefixed("version part: ", validation.IsDNS1035Label(version))...)
}
