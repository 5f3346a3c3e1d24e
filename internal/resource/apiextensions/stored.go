package apiextensions

import (
	"encoding/json"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// storedAPIVersion is v1beta1. kube-apiserver stores definitions in this version, which it no longer serves. A
// definition in v1beta1 has one validation, one set of subresources and one set of columns at the top level; versions
// have their own only if they differ. All other parts have the same JSON as in v1, so the types of v1 are used for
// them.
const storedAPIVersion = "apiextensions.k8s.io/v1beta1"

type storedDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   storedSpec                                     `json:"spec"`
	Status apiextensionsv1.CustomResourceDefinitionStatus `json:"status,omitempty"`
}

type storedSpec struct {
	Group   string                                        `json:"group"`
	Version string                                        `json:"version,omitempty"`
	Names   apiextensionsv1.CustomResourceDefinitionNames `json:"names"`
	Scope   apiextensionsv1.ResourceScope                 `json:"scope"`

	Validation   *apiextensionsv1.CustomResourceValidation   `json:"validation,omitempty"`
	Subresources *apiextensionsv1.CustomResourceSubresources `json:"subresources,omitempty"`
	Versions     []storedVersion                             `json:"versions,omitempty"`
	Columns      []storedColumn                              `json:"additionalPrinterColumns,omitempty"`
	Selectable   []apiextensionsv1.SelectableField           `json:"selectableFields,omitempty"`

	Conversion *storedConversion `json:"conversion,omitempty"`
	// PreserveUnknownFields is true by default, unlike in v1.
	PreserveUnknownFields *bool `json:"preserveUnknownFields,omitempty"`
}

type storedVersion struct {
	Name               string                                      `json:"name"`
	Served             bool                                        `json:"served"`
	Storage            bool                                        `json:"storage"`
	Deprecated         bool                                        `json:"deprecated,omitempty"`
	DeprecationWarning *string                                     `json:"deprecationWarning,omitempty"`
	Schema             *apiextensionsv1.CustomResourceValidation   `json:"schema,omitempty"`
	Subresources       *apiextensionsv1.CustomResourceSubresources `json:"subresources,omitempty"`
	Columns            []storedColumn                              `json:"additionalPrinterColumns,omitempty"`
	Selectable         []apiextensionsv1.SelectableField           `json:"selectableFields,omitempty"`
}

// storedColumn is v1's column with another name of the last member.
type storedColumn struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`
	Priority    int32  `json:"priority,omitempty"`
	JSONPath    string `json:"JSONPath"`
}

type storedConversion struct {
	Strategy             apiextensionsv1.ConversionStrategyType `json:"strategy"`
	WebhookClientConfig  *apiextensionsv1.WebhookClientConfig   `json:"webhookClientConfig,omitempty"`
	ConversionReviewList []string                               `json:"conversionReviewVersions,omitempty"`
}

// encodeStored returns the stored document of a definition.
func encodeStored(obj registry.Object) ([]byte, error) {
	return json.Marshal(toStored(obj.(*definition)))
}

// decodeStored decodes a stored document in v1beta1 or v1.
func decodeStored(document []byte) (registry.Object, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	if head.APIVersion == apiextensionsv1.SchemeGroupVersion.String() {
		out := &definition{}
		return out, json.Unmarshal(document, out)
	}
	stored := &storedDefinition{}
	if err := json.Unmarshal(document, stored); err != nil {
		return nil, err
	}
	return fromStored(stored), nil
}

func toStored(d *definition) *storedDefinition {
	top := hoistCommon(&d.Spec)
	spec := storedSpec{
		Group: d.Spec.Group, Version: top.version, Names: d.Spec.Names, Scope: d.Spec.Scope,
		Validation: top.schema, Subresources: top.subresources, Columns: storedColumns(top.columns),
		Selectable:            top.selectable,
		PreserveUnknownFields: &d.Spec.PreserveUnknownFields,
	}
	for _, v := range top.versions {
		spec.Versions = append(spec.Versions, storedVersion{
			Name: v.Name, Served: v.Served, Storage: v.Storage,
			Deprecated: v.Deprecated, DeprecationWarning: v.DeprecationWarning,
			Schema: v.Schema, Subresources: v.Subresources,
			Columns: storedColumns(v.AdditionalPrinterColumns), Selectable: v.SelectableFields,
		})
	}
	if c := d.Spec.Conversion; c != nil {
		spec.Conversion = &storedConversion{Strategy: c.Strategy}
		if c.Webhook != nil {
			spec.Conversion.WebhookClientConfig = c.Webhook.ClientConfig
			spec.Conversion.ConversionReviewList = c.Webhook.ConversionReviewVersions
		}
	}
	return &storedDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: storedAPIVersion, Kind: "CustomResourceDefinition"},
		ObjectMeta: d.ObjectMeta, Spec: spec, Status: d.Status,
	}
}

// fromStored converts a stored definition and sets the defaults of v1beta1. Versions share the
// values that were at the top level.
// A value at the top level replaces that of every version, so a document that has both is read as v1beta1 means
// it.
func fromStored(d *storedDefinition) *definition {
	d.setDefaults()
	out := &definition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind: "CustomResourceDefinition"},
		ObjectMeta: d.ObjectMeta, Status: d.Status,
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: d.Spec.Group, Names: d.Spec.Names, Scope: d.Spec.Scope,
			PreserveUnknownFields: *d.Spec.PreserveUnknownFields,
		},
	}
	columns := servedColumns(d.Spec.Columns)
	for _, v := range d.Spec.Versions {
		version := apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v.Name, Served: v.Served, Storage: v.Storage,
			Deprecated: v.Deprecated, DeprecationWarning: v.DeprecationWarning,
			Schema: v.Schema, Subresources: v.Subresources,
			AdditionalPrinterColumns: servedColumns(v.Columns), SelectableFields: v.Selectable,
		}
		if d.Spec.Validation != nil {
			version.Schema = d.Spec.Validation
		}
		if d.Spec.Subresources != nil {
			version.Subresources = d.Spec.Subresources
		}
		if columns != nil {
			version.AdditionalPrinterColumns = columns
		}
		if d.Spec.Selectable != nil {
			version.SelectableFields = d.Spec.Selectable
		}
		out.Spec.Versions = append(out.Spec.Versions, version)
	}
	c := d.Spec.Conversion
	out.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: c.Strategy}
	if c.WebhookClientConfig != nil || c.ConversionReviewList != nil {
		out.Spec.Conversion.Webhook = &apiextensionsv1.WebhookConversion{
			ClientConfig: c.WebhookClientConfig, ConversionReviewVersions: c.ConversionReviewList,
		}
	}
	return out
}

// setDefaults sets the defaults of v1beta1, for definitions that old servers stored.
// A webhook from the time before conversionReviewVersions understands only v1beta1. preserveUnknownFields is
// true: definitions of v1beta1 did not need a structural schema, and their objects were not pruned by default.
func (d *storedDefinition) setDefaults() {
	spec := &d.Spec
	declare.Value(&spec.Scope, apiextensionsv1.NamespaceScoped)
	defaultNames(&spec.Names)
	if len(spec.Versions) == 0 && spec.Version != "" {
		spec.Versions = []storedVersion{{Name: spec.Version, Served: true, Storage: true}}
	}
	if spec.Conversion == nil {
		spec.Conversion = &storedConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	if c := spec.Conversion; c.Strategy == apiextensionsv1.WebhookConverter && len(c.ConversionReviewList) == 0 {
		c.ConversionReviewList = []string{"v1beta1"}
	}
	if c := spec.Conversion.WebhookClientConfig; c != nil && c.Service != nil {
		declare.Pointer(&c.Service.Port, webhookPort)
	}
	declare.Pointer(&spec.PreserveUnknownFields, true)
	if len(d.Status.StoredVersions) == 0 {
		if i := slices.IndexFunc(spec.Versions, func(v storedVersion) bool { return v.Storage }); i >= 0 {
			d.Status.StoredVersions = []string{spec.Versions[i].Name}
		}
	}
}

func storedColumns(columns []apiextensionsv1.CustomResourceColumnDefinition) []storedColumn {
	var out []storedColumn
	for _, c := range columns {
		out = append(out, storedColumn(c))
	}
	return out
}

func servedColumns(columns []storedColumn) []apiextensionsv1.CustomResourceColumnDefinition {
	var out []apiextensionsv1.CustomResourceColumnDefinition
	for _, c := range columns {
		out = append(out, apiextensionsv1.CustomResourceColumnDefinition(c))
	}
	return out
}

// v1beta1Spec is a spec in kube-apiserver's internal version: values that are equal in all
// versions are at the top level, so error messages name them there.
type v1beta1Spec struct {
	// version is the name of the first version.
	version      string
	schema       *apiextensionsv1.CustomResourceValidation
	subresources *apiextensionsv1.CustomResourceSubresources
	columns      []apiextensionsv1.CustomResourceColumnDefinition
	selectable   []apiextensionsv1.SelectableField
	// versions are the versions without the values that are at the top level.
	versions []apiextensionsv1.CustomResourceDefinitionVersion
}

// hoistCommon returns spec in the form of the internal version. A part moves to the top level if it is equal in
// all versions, each part by itself. A definition with one version therefore has all of its parts there, and its
// errors begin with spec.validation and not with spec.versions[0].schema. nil and an empty list are equal. spec
// is not changed.
func hoistCommon(spec *apiextensionsv1.CustomResourceDefinitionSpec) v1beta1Spec {
	out := v1beta1Spec{versions: slices.Clone(spec.Versions)}
	if len(out.versions) == 0 {
		return out
	}
	first := spec.Versions[0]
	out.version = first.Name
	same := func(part func(*apiextensionsv1.CustomResourceDefinitionVersion) any) bool {
		for i := range out.versions[1:] {
			if !equality.Semantic.DeepEqual(part(&out.versions[i+1]), part(&first)) {
				return false
			}
		}
		return true
	}
	type version = apiextensionsv1.CustomResourceDefinitionVersion
	if same(func(v *version) any { return v.Schema }) {
		out.schema = first.Schema
		out.each(func(v *version) { v.Schema = nil })
	}
	if same(func(v *version) any { return v.Subresources }) {
		out.subresources = first.Subresources
		out.each(func(v *version) { v.Subresources = nil })
	}
	if same(func(v *version) any { return v.AdditionalPrinterColumns }) {
		out.columns = first.AdditionalPrinterColumns
		out.each(func(v *version) { v.AdditionalPrinterColumns = nil })
	}
	if same(func(v *version) any { return v.SelectableFields }) {
		out.selectable = first.SelectableFields
		out.each(func(v *version) { v.SelectableFields = nil })
	}
	return out
}

func (s *v1beta1Spec) each(change func(*apiextensionsv1.CustomResourceDefinitionVersion)) {
	for i := range s.versions {
		change(&s.versions[i])
	}
}
