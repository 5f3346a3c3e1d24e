package apiextensions

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	internalapi "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validate validates a definition. The generic validation of metadata is done elsewhere,
// except for the name, which depends on the spec.
func validate(ctx context.Context, d, _ *definition) field.ErrorList {
	errs := validateName(d)
	errs = append(errs, newSpecChecker(ctx, &d.Spec, previousDefinition{}).check()...)
	errs = append(errs, validateStatus(d)...)
	errs = append(errs, validateStoredVersions(d)...)
	errs = append(errs, validateApproval(d, nil)...)
	return append(errs, validatePreserve(d, nil)...)
}

// validateUpdate validates an update. The name is not validated again: it cannot change, and neither can the
// plural and the group that it consists of.
func validateUpdate(ctx context.Context, d, old *definition) field.ErrorList {
	before := previousDefinition{old}
	errs := newSpecChecker(ctx, &d.Spec, before).check()
	errs = append(errs, validateImmutable(&d.Spec, &old.Spec, before.established())...)
	errs = append(errs, validateStatus(d)...)
	errs = append(errs, validateStoredVersions(d)...)
	errs = append(errs, validateApproval(d, old)...)
	return append(errs, validatePreserve(d, old)...)
}

func validateStatusUpdate(d, _ *definition) field.ErrorList {
	return validateStatus(d)
}

// validateName requires the name PLURAL.GROUP. A cluster therefore has at most one definition of a resource.
// generateName can only be that text too, because a suffix would make another name.
func validateName(d *definition) field.ErrorList {
	var errs field.ErrorList
	want := d.Spec.Names.Plural + "." + d.Spec.Group
	for _, name := range []struct{ member, value string }{{"generateName", d.GenerateName}, {"name", d.Name}} {
		errs = append(errs, field.InvalidIf(name.value != "" && name.value != want, field.NewPath("metadata", name.member),
			name.value, `must be spec.names.plural+"."+spec.group`)...)
	}
	return errs
}

// validateImmutable refuses changes of fields that stored objects depend on. names says whether scope and kind
// are among them: before a definition is established there are no objects.
func validateImmutable(spec, old *definitionSpec, names bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	same := func(value, before string, path *field.Path) {
		errs = append(errs, field.InvalidIf(value != before, path, value, "field is immutable")...)
	}
	if names {
		// Stored objects contain the kind, and their keys depend on the scope.
		same(string(spec.Scope), string(old.Scope), path.Child("scope"))
		same(spec.Names.Kind, old.Names.Kind, path.Child("names", "kind"))
	}
	same(spec.Group, old.Group, path.Child("group"))
	same(spec.Names.Plural, old.Names.Plural, path.Child("names", "plural"))
	return errs
}

func validateStatus(d *definition) field.ErrorList {
	return validateNames(&d.Status.AcceptedNames, field.NewPath("status", "acceptedNames"))
}

// validateStoredVersions keeps the versions in the spec that objects may still be stored in: without its version,
// such an object could not be read any more. The errors are in the order of the names.
func validateStoredVersions(d *definition) field.ErrorList {
	stored, path := d.Status.StoredVersions, field.NewPath("status", "storedVersions")
	if len(stored) == 0 {
		return field.ErrorList{field.Invalid(path, stored, "must have at least one stored version")}
	}
	var errs field.ErrorList
	// index has the positions of the stored versions that are not found in the spec yet.
	index := map[string]int{}
	for i, name := range stored {
		index[name] = i
	}
	for _, v := range d.Spec.Versions {
		if _, found := index[v.Name]; v.Storage && !found {
			errs = append(errs, field.Invalid(path, stored, "must have the storage version "+v.Name))
		}
		delete(index, v.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(index)) {
		errs = append(errs, field.Invalid(path.Index(index[name]), name,
			fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, "+
				"and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s "+
				"and removes %[1]s from status.storedVersions", name)))
	}
	return errs
}

// approval is the result of parsing the approval annotation, which definitions in a group of
// the Kubernetes community need (KEP-1111).
type approval int

const (
	approved approval = iota
	unapproved
	approvalMissing
	approvalInvalid
)

// approvalOf parses the annotation. For example, https://github.com/kubernetes/kubernetes/pull/78458 is approved,
// "unapproved, experimental-only" is unapproved, and pull/78458 is invalid.
func approvalOf(annotation string) approval {
	address, err := url.ParseRequestURI(annotation)
	switch {
	case annotation == "":
		return approvalMissing
	case strings.HasPrefix(annotation, "unapproved"):
		return unapproved
	case err == nil && address.Host != "" && address.Scheme != "":
		return approved
	}
	return approvalInvalid
}

// isProtectedGroup reports whether a group belongs to the Kubernetes community: k8s.io and apps.k8s.io do,
// example-k8s.io does not.
func isProtectedGroup(group string) bool {
	return slices.ContainsFunc([]string{"k8s.io", "kubernetes.io"}, func(domain string) bool {
		return group == domain || strings.HasSuffix(group, "."+domain)
	})
}

// validateApproval requires the annotation in protected groups. An update that leaves the state of the approval
// as it was is accepted, because definitions may be older than the rule.
func validateApproval(d, old *definition) field.ErrorList {
	if !isProtectedGroup(d.Spec.Group) {
		return nil
	}
	const annotation = apiextensionsv1.KubeAPIApprovedAnnotation
	state := approvalOf(d.Annotations[annotation])
	if old != nil && approvalOf(old.Annotations[annotation]) == state {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(annotation)
	required := fmt.Sprintf("protected groups must have approval annotation %q", annotation)
	const see = ", see https://github.com/kubernetes/enhancements/pull/1111"
	switch state {
	case approvalMissing:
		return field.ErrorList{field.Required(path, required+see)}
	case approvalInvalid:
		return field.ErrorList{
			field.Invalid(path, d.Annotations[annotation],
				required+` with either a URL or a reason starting with "unapproved"`+see)}
	}
	return nil
}

// validatePreserve refuses preserveUnknownFields in new definitions. Only definitions that come from v1beta1,
// where true was the default, may keep it.
func validatePreserve(d, old *definition) field.ErrorList {
	if !d.Spec.PreserveUnknownFields || (old != nil && old.Spec.PreserveUnknownFields) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true,
		"cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead")}
}

// specChecker collects the errors of a spec.
type specChecker struct {
	problems
	ctx      context.Context
	spec     *definitionSpec
	top      v1beta1Spec
	previous previousDefinition
	path     *field.Path
	// structural is true if schemas have to be structural.
	structural bool
}

func newSpecChecker(ctx context.Context, spec *definitionSpec, before previousDefinition) *specChecker {
	return &specChecker{ctx: ctx, spec: spec, top: hoistCommon(spec), previous: before, path: field.NewPath("spec")}
}

// problems collects errors.
type problems struct{ errs field.ErrorList }

func (p *problems) add(errs field.ErrorList) { p.errs = append(p.errs, errs...) }

func (p *problems) invalid(path *field.Path, value any, why string) {
	p.errs = append(p.errs, field.Invalid(path, value, why))
}

func (p *problems) required(path *field.Path, why string) {
	p.errs = append(p.errs, field.Required(path, why))
}

func (p *problems) forbidden(path *field.Path, why string) {
	p.errs = append(p.errs, field.Forbidden(path, why))
}

// forbidIf is forbidden for a member that is found. It makes no path for others: schemas are many.
func (p *problems) forbidIf(found bool, path *field.Path, name, why string) {
	if found {
		p.forbidden(path.Child(name), why)
	}
}

func (c *specChecker) check() field.ErrorList {
	c.checkGroup()
	c.add(field.RequiredOneOf(c.path.Child("scope"), c.spec.Scope, apiextensionsv1.ClusterScoped,
		apiextensionsv1.NamespaceScoped))
	c.requireSchemas()
	c.decideStructural()
	c.checkVersions()
	c.checkRequiredNames()
	c.add(validateNames(&c.spec.Names, c.path.Child("names")))
	c.checkTopLevel()
	c.checkConversion()
	return c.errs
}

func (c *specChecker) checkGroup() {
	path := c.path.Child("group")
	if c.spec.Group == "" {
		c.required(path, "")
	} else if msgs := validation.IsDNS1123Subdomain(c.spec.Group); len(msgs) > 0 {
		c.invalid(path, c.spec.Group, strings.Join(msgs, ","))
	} else if !strings.Contains(c.spec.Group, ".") {
		c.invalid(path, c.spec.Group, "should be a domain with at least one dot")
	}
}

// requireSchemas requires a schema for every version, or only for the served ones if the
// previous definition has versions without schema.
func (c *specChecker) requireSchemas() {
	if c.top.schema != nil && c.top.schema.OpenAPIV3Schema != nil {
		return
	}
	for i := range c.top.versions {
		v, path := &c.top.versions[i], c.path.Child("versions").Index(i).Child("schema", "openAPIV3Schema")
		switch {
		case schemaOf(v) != nil:
		case !c.previous.lacksSchemas():
			c.required(path, "")
		case !c.spec.PreserveUnknownFields && v.Served:
			c.required(path, "because otherwise all fields are pruned")
		}
	}
}

// decideStructural decides whether schemas have to be structural. They need not be if the
// definition preserves unknown fields, the previous definition has a schema that is not
// structural, and no schema uses defaults or extensions.
func (c *specChecker) decideStructural() {
	defaults := c.spec.PreserveUnknownFields && anySchemaMatches(c.spec, hasDefault)
	c.add(field.InvalidIf(defaults, c.path.Child("preserveUnknownFields"), true,
		"must be false in order to use defaults in the schema"))
	c.structural = !c.spec.PreserveUnknownFields || defaults || anySchemaMatches(c.spec, hasExtension) ||
		!c.previous.unstructured()
}

func (c *specChecker) checkVersions() {
	path := c.path.Child("versions")
	seen, unique, storage := map[string]bool{}, true, 0
	for i := range c.top.versions {
		v := &c.top.versions[i]
		if v.Storage {
			storage++
		}
		unique = unique && !seen[v.Name]
		seen[v.Name] = true
		c.add(field.Joined(path.Index(i).Child("name"), v.Name, "", validation.IsDNS1035Label(v.Name)))
		c.checkVersion(v, path.Index(i))
	}
	if !unique {
		c.invalid(path, c.internalVersions(), "must contain unique version names")
	}
	if storage != 1 {
		c.invalid(path, c.internalVersions(), "must have exactly one version marked as storage version")
	}
	c.add(field.IfSet(c.path.Child("version"), c.top.version, func(at *field.Path, name string) field.ErrorList {
		return field.Joined(at, name, "", validation.IsDNS1035Label(name))
	}))
}

// internalVersions returns the versions as they appear in kube-apiserver's messages: with the
// Go field names of its internal type.
func (c *specChecker) internalVersions() any {
	var out internalapi.CustomResourceDefinitionSpec
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec(c.spec,
		&out, nil); err != nil {
		return err.Error()
	}
	return out.Versions
}

func (c *specChecker) checkVersion(v *version, path *field.Path) {
	for _, why := range validateDeprecationWarning(v) {
		c.invalid(path.Child("deprecationWarning"), v.DeprecationWarning, why)
	}
	subresources := c.top.subresources
	if subresources == nil {
		// If there are several versions with the name, this is the first one.
		named := func(other version) bool { return other.Name == v.Name }
		subresources = c.top.versions[slices.IndexFunc(c.top.versions, named)].Subresources
	}
	c.checkSchema(v.Schema, hasStatus(subresources), v.Name, path.Child("schema"))
	c.checkSubresources(v.Subresources, path.Child("subresources"))
	for i := range v.AdditionalPrinterColumns {
		c.checkColumn(&v.AdditionalPrinterColumns[i], path.Child("additionalPrinterColumns").Index(i))
	}
	if len(v.SelectableFields) == 0 {
		return
	}
	if schemaOf(v) == nil {
		c.invalid(path.Child("selectableFields"), "", "may only be set when `version.schema.openAPIV3Schema` is not included")
		return
	}
	c.checkSelectable(v.SelectableFields, schemaOf(v), v.Name, path)
}

// checkTopLevel validates the values that all versions share.
func (c *specChecker) checkTopLevel() {
	status := hasStatus(c.top.subresources) ||
		slices.ContainsFunc(c.top.versions, func(v version) bool { return hasStatus(v.Subresources) })
	c.checkSchema(c.top.schema, status, c.top.version, c.path.Child("validation"))
	c.checkSubresources(c.top.subresources, c.path.Child("subresources"))
	for i := range c.top.columns {
		c.checkColumn(&c.top.columns[i], c.path.Child("additionalPrinterColumns").Index(i))
	}
	if len(c.top.selectable) == 0 {
		return
	}
	if c.top.schema == nil {
		c.invalid(c.path.Child("selectableFields"), "", "may only be set when validations.schema is included")
		return
	}
	c.checkSelectable(c.top.selectable, c.top.schema.OpenAPIV3Schema, "", c.path)
}

func validateDeprecationWarning(v *version) []string {
	if v.DeprecationWarning == nil {
		return nil
	}
	if !v.Deprecated {
		return []string{"can only be set for deprecated versions"}
	}
	var out []string
	text := *v.DeprecationWarning
	// The length is in bytes, although the message says characters.
	if len(text) > 256 {
		out = append(out, "must be <= 256 characters long")
	}
	if text == "" {
		out = append(out, "must not be an empty string")
	}
	// Control characters are also not printable.
	if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		out = append(out,
			fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d", i))
	}
	if !utf8.ValidString(text) {
		out = append(out, "must only contain printable UTF-8 characters")
	}
	return out
}

// checkRequiredNames requires the names. A missing singular or listKind is reported only with a missing kind,
// because the defaults derive both from it.
func (c *specChecker) checkRequiredNames() {
	names, path := &c.spec.Names, c.path.Child("names")
	for _, name := range []struct{ member, value string }{
		{"plural", names.Plural}, {"singular", names.Singular}, {"kind", names.Kind}, {"listKind", names.ListKind},
	} {
		c.add(field.RequiredIf(name.value == "", path.Child(name.member), ""))
	}
}

// validateNames validates the names in the spec, or the accepted names in the status.
func validateNames(names *apiextensionsv1.CustomResourceDefinitionNames, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	label := func(value, prefix string, path *field.Path) {
		check := value
		if prefix != "" {
			check = strings.ToLower(value)
		}
		errs = append(errs, field.Joined(path, value, prefix, validation.IsDNS1035Label(check))...)
	}
	// A kind is compared in lower case: Widget and HTTPRoute are valid, My_Kind is not.
	const mixed = "may have mixed case, but should otherwise match: "
	for _, name := range []struct{ member, value, prefix string }{
		{"plural", names.Plural, ""}, {"singular", names.Singular, ""}, {"kind", names.Kind, mixed},
		{"listKind", names.ListKind, mixed},
	} {
		if name.value != "" {
			label(name.value, name.prefix, path.Child(name.member))
		}
	}
	for i, name := range names.ShortNames {
		label(name, "", path.Child("shortNames").Index(i))
	}
	// Objects and lists of them have to be distinguishable by their kind.
	errs = append(errs, field.InvalidIf(names.Kind != "" && names.Kind == names.ListKind, path.Child("listKind"),
		names.ListKind, "kind and listKind may not be the same")...)
	for i, name := range names.Categories {
		label(name, "", path.Child("categories").Index(i))
	}
	return errs
}
