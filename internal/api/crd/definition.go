package crd

import (
	"context"
	"crypto/x509"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/crd/openapi"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// definition holds what the server keeps in memory of one CustomResourceDefinition: everything that decides whether
// and where it is served, but no decoded schemas. It is immutable.
type definition struct {
	name     string
	uid      types.UID
	revision int64
	created  int64 // the revision at which the definition was created
	group    string
	scope    apiextensionsv1.ResourceScope
	names    apiextensionsv1.CustomResourceDefinitionNames
	versions []version
	approval string // the annotation api-approved.kubernetes.io, or ""
	// invalidCABundle is true if the caBundle of the conversion webhook contains no certificate.
	invalidCABundle bool
	deleting        bool
	hasFinalizer    bool // the finalizer customresourcecleanup is present
	status          status
	// spec is the encoded spec. The compiled definition depends only on it and on the accepted names.
	spec string
	// creates is closed while no new objects are accepted. All states of a definition share it, until it is gone.
	creates *registry.Gate
	// kinds is the compiled definition. Successive states of a definition with the same spec and accepted names
	// share it.
	kinds *kinds
}

// version is one version of a definition, without its schema.
type version struct {
	name            string
	served, storage bool
	status, scale   bool
}

// status is the part of a definition that this server writes.
type status struct {
	names      apiextensionsv1.CustomResourceDefinitionNames
	conditions []apiextensionsv1.CustomResourceDefinitionCondition
}

// decodedDefinition is the part of a CustomResourceDefinition that newDefinition decodes: no schemas.
type decodedDefinition struct {
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

// rawSpec keeps the encoded spec together with the decoded fields.
type rawSpec struct {
	text string
	decodedSpec
}

type decodedSpec struct {
	Group      string                                        `json:"group"`
	Scope      apiextensionsv1.ResourceScope                 `json:"scope"`
	Names      apiextensionsv1.CustomResourceDefinitionNames `json:"names"`
	Conversion *apiextensionsv1.CustomResourceConversion     `json:"conversion"`
	Versions   []struct {
		Name         string `json:"name"`
		Served       bool   `json:"served"`
		Storage      bool   `json:"storage"`
		Subresources *struct {
			Status *struct{} `json:"status"`
			Scale  *struct{} `json:"scale"`
		} `json:"subresources"`
	} `json:"versions"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *rawSpec) UnmarshalJSON(text []byte) error {
	s.text = string(text)
	return scheme.UnmarshalTree(text, &s.decodedSpec)
}

// newDefinition decodes a stored definition.
func newDefinition(ctx context.Context, r *registry.Resource, o *cache.Object) (*definition, error) {
	item, err := r.Renderer.ItemJSON(ctx, o, &r.Kind.Versions[0])
	if err != nil {
		return nil, err
	}
	var l decodedDefinition
	if err := scheme.UnmarshalTree(item, &l); err != nil {
		return nil, err
	}
	d := &definition{
		name: l.Metadata.Name, uid: l.Metadata.UID, revision: o.Revision, created: o.CreateRevision,
		group: l.Spec.Group, scope: l.Spec.Scope, names: l.Spec.Names,
		approval:        l.Metadata.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation],
		invalidCABundle: invalidCABundle(l.Spec.Conversion),
		deleting:        l.Metadata.DeletionTimestamp != nil,
		hasFinalizer:    slices.Contains(l.Metadata.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer),
		status:          status{names: l.Status.AcceptedNames, conditions: l.Status.Conditions},
		spec:            l.Spec.text,
		creates:         &registry.Gate{},
		kinds:           &kinds{},
	}
	for _, v := range l.Spec.Versions {
		d.versions = append(d.versions, version{
			name: v.Name, served: v.Served, storage: v.Storage,
			status: v.Subresources != nil && v.Subresources.Status != nil,
			scale:  v.Subresources != nil && v.Subresources.Scale != nil,
		})
	}
	return d, nil
}

// follow makes d the state after old. It takes the compiled kinds of old if the spec and the accepted names are the
// same. Otherwise the kinds of d replace those of old.
func (d *definition) follow(old *definition) {
	if d.uid == old.uid {
		d.creates = old.creates
	}
	if d.uid == old.uid && d.spec == old.spec && sameNames(&d.status.names, &old.status.names) {
		d.kinds, d.spec = old.kinds, old.spec
		return
	}
	d.kinds.setPrevious(old.kinds)
}

func sameNames(a, b *apiextensionsv1.CustomResourceDefinitionNames) bool {
	return a.Plural == b.Plural && a.Singular == b.Singular && a.Kind == b.Kind && a.ListKind == b.ListKind &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}

// key returns the group and resource under which the definition is served.
func (d *definition) key() schema.GroupResource {
	// Validation requires that the name of a definition is its plural name, a dot and its group.
	return schema.GroupResource{Group: d.group, Resource: beforeDot(d.name)}
}

// serves reports whether requests for the resource are served.
func (d *definition) serves() bool {
	n := &d.status.names
	return (d.status.namesAccepted() || d.status.established()) &&
		n.Plural != "" && n.Singular != "" && n.Kind != "" && n.ListKind != ""
}

// terminating reports whether the objects of the definition are being deleted.
func (d *definition) terminating() bool { return d.status.is(apiextensionsv1.Terminating) }

// refusesCreates reports whether no new objects are accepted. This lasts until the definition is gone: also after
// its objects have been deleted, while finalizers of other controllers keep the definition.
func (d *definition) refusesCreates() bool { return d.deleting || d.terminating() }

func (d *definition) version(name string) *version {
	for i := range d.versions {
		if d.versions[i].name == name && d.versions[i].served {
			return &d.versions[i]
		}
	}
	return nil
}

// servesRequest reports whether the definition serves the version of a request and whether the path has the right
// scope (with or without a namespace).
func (d *definition) servesRequest(info *request.Info) bool {
	if d.version(info.Version) == nil {
		return false
	}
	namespaced := d.scope == apiextensionsv1.NamespaceScoped
	switch {
	case !namespaced:
		return info.Namespace == ""
	case info.Namespace == "":
		// Without a namespace, a namespaced resource only supports list and watch.
		return info.Verb == "list" || info.Verb == "watch"
	}
	return true
}

func invalidCABundle(c *apiextensionsv1.CustomResourceConversion) bool {
	if c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || len(c.Webhook.ClientConfig.CABundle) == 0 {
		return false
	}
	return !x509.NewCertPool().AppendCertsFromPEM(c.Webhook.ClientConfig.CABundle)
}

func (s *status) condition(
	t apiextensionsv1.CustomResourceDefinitionConditionType,
) *apiextensionsv1.CustomResourceDefinitionCondition {
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

// document returns the input for the OpenAPI documents of the definition.
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
