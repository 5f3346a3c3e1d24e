package crd

import (
	"context"
	"crypto/x509"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/crd/openapi"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/scheme"
)

// A definition is what the server keeps of one CustomResourceDefinition: all that
// decides whether and where it is served, but no schema. It does not change.
type definition struct {
	name     string
	uid      types.UID
	revision int64
	group    string
	scope    apiextensionsv1.ResourceScope
	names    apiextensionsv1.CustomResourceDefinitionNames
	versions []version
	approval string // the annotation, "" if there is none
	// badAuthority says that the certificates to trust a conversion webhook by cannot
	// be read.
	badAuthority bool
	deleting     bool
	cleanup      bool // the finalizer is there
	status       status
	// spec are the bytes of the specification: what is compiled depends on them and
	// on the accepted names alone.
	spec string
	// kinds are the compiled ones, shared by definitions that follow each other with
	// the same specification and names.
	kinds *kinds
}

// version is one version of a definition.
type version struct {
	name            string
	served, storage bool
	deprecated      bool
	warning         *string
	status, scale   bool
}

// status is the part of a definition that its controllers write.
type status struct {
	names      apiextensionsv1.CustomResourceDefinitionNames
	conditions []apiextensionsv1.CustomResourceDefinitionCondition
}

// light is a definition as it is decoded here, without schemas.
type light struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               types.UID         `json:"uid"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp *string           `json:"deletionTimestamp"`
		Finalizers        []string          `json:"finalizers"`
	} `json:"metadata"`
	Spec   rawSpec `json:"spec"`
	Status struct {
		AcceptedNames apiextensionsv1.CustomResourceDefinitionNames       `json:"acceptedNames"`
		Conditions    []apiextensionsv1.CustomResourceDefinitionCondition `json:"conditions"`
	} `json:"status"`
}

// rawSpec keeps the bytes of a specification beside what is read of them.
type rawSpec struct {
	text string
	lightSpec
}

type lightSpec struct {
	Group      string                                        `json:"group"`
	Scope      apiextensionsv1.ResourceScope                 `json:"scope"`
	Names      apiextensionsv1.CustomResourceDefinitionNames `json:"names"`
	Conversion *apiextensionsv1.CustomResourceConversion     `json:"conversion"`
	Versions   []struct {
		Name               string  `json:"name"`
		Served             bool    `json:"served"`
		Storage            bool    `json:"storage"`
		Deprecated         bool    `json:"deprecated"`
		DeprecationWarning *string `json:"deprecationWarning"`
		Subresources       *struct {
			Status *struct{} `json:"status"`
			Scale  *struct{} `json:"scale"`
		} `json:"subresources"`
	} `json:"versions"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *rawSpec) UnmarshalJSON(text []byte) error {
	s.text = string(text)
	return scheme.UnmarshalTree(text, &s.lightSpec)
}

// newDefinition reads a stored definition.
func newDefinition(ctx context.Context, r *registry.Resource, o *cache.Object) (*definition, error) {
	item, err := r.ItemJSON(ctx, o, &r.Kind.Versions[0])
	if err != nil {
		return nil, err
	}
	var l light
	if err := scheme.UnmarshalTree(item, &l); err != nil {
		return nil, err
	}
	d := &definition{
		name: l.Metadata.Name, uid: l.Metadata.UID, revision: o.Revision,
		group: l.Spec.Group, scope: l.Spec.Scope, names: l.Spec.Names,
		approval:     l.Metadata.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation],
		badAuthority: badAuthority(l.Spec.Conversion),
		deleting:     l.Metadata.DeletionTimestamp != nil,
		cleanup:      slices.Contains(l.Metadata.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer),
		status:       status{names: l.Status.AcceptedNames, conditions: l.Status.Conditions},
		spec:         l.Spec.text,
		kinds:        newKinds(),
	}
	for _, v := range l.Spec.Versions {
		d.versions = append(d.versions, version{
			name: v.Name, served: v.Served, storage: v.Storage, deprecated: v.Deprecated, warning: v.DeprecationWarning,
			status: v.Subresources != nil && v.Subresources.Status != nil,
			scale:  v.Subresources != nil && v.Subresources.Scale != nil,
		})
	}
	return d, nil
}

// inherit takes over what is compiled of old if it means the same.
func (d *definition) inherit(old *definition) {
	if d.uid == old.uid && d.spec == old.spec && sameNames(&d.status.names, &old.status.names) && d.terminating() == old.terminating() {
		d.kinds, d.spec = old.kinds, old.spec
		return
	}
	d.kinds.follow(old.kinds)
}

func sameNames(a, b *apiextensionsv1.CustomResourceDefinitionNames) bool {
	return a.Plural == b.Plural && a.Singular == b.Singular && a.Kind == b.Kind && a.ListKind == b.ListKind &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}

// key is where the definition's resource is served.
func (d *definition) key() schema.GroupResource {
	// The plural name is never another one than the definition's own name begins with.
	return schema.GroupResource{Group: d.group, Resource: beforeDot(d.name)}
}

// serves says whether requests for the resource are answered.
func (d *definition) serves() bool {
	n := &d.status.names
	return (d.status.namesAccepted() || d.status.established()) &&
		n.Plural != "" && n.Singular != "" && n.Kind != "" && n.ListKind != ""
}

// terminating says that no new objects are accepted.
func (d *definition) terminating() bool { return d.status.is(apiextensionsv1.Terminating) }

func (d *definition) version(name string) *version {
	for i := range d.versions {
		if d.versions[i].name == name && d.versions[i].served {
			return &d.versions[i]
		}
	}
	return nil
}

// fits says whether the version of a request is served, in the scope of its path.
func (d *definition) fits(info *request.Info) bool {
	if d.version(info.Version) == nil {
		return false
	}
	namespaced := d.scope == apiextensionsv1.NamespaceScoped
	switch {
	case !namespaced:
		return info.Namespace == ""
	case info.Namespace == "":
		// Across namespaces there are only lists and watches.
		return info.Verb == "list" || info.Verb == "watch"
	}
	return true
}

func badAuthority(c *apiextensionsv1.CustomResourceConversion) bool {
	if c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || len(c.Webhook.ClientConfig.CABundle) == 0 {
		return false
	}
	return !x509.NewCertPool().AppendCertsFromPEM(c.Webhook.ClientConfig.CABundle)
}

func (s *status) condition(t apiextensionsv1.CustomResourceDefinitionConditionType) *apiextensionsv1.CustomResourceDefinitionCondition {
	for i := range s.conditions {
		if s.conditions[i].Type == t {
			return &s.conditions[i]
		}
	}
	return nil
}

func (s *status) is(t apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	c := s.condition(t)
	return c != nil && c.Status == apiextensionsv1.ConditionTrue
}

func (s *status) namesAccepted() bool { return s.is(apiextensionsv1.NamesAccepted) }

func (s *status) established() bool { return s.is(apiextensionsv1.Established) }

func beforeDot(s string) string { name, _, _ := strings.Cut(s, "."); return name }

// document is what OpenAPI documents are made of.
func (d *definition) document() openapi.Definition {
	out := openapi.Definition{
		Name: d.name, Group: d.group, Spec: d.spec,
		NonStructural: d.status.is(apiextensionsv1.NonStructuralSchema),
	}
	for i := range d.versions {
		if v := &d.versions[i]; v.served {
			out.Versions = append(out.Versions, v.name)
		}
	}
	return out
}
