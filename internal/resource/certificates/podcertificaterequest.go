package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type podRequest = certificatesv1beta1.PodCertificateRequest

// podCertificateRequest declares the requests that a kubelet makes for projected volumes with the source
// podCertificate (KEP-4317).
func podCertificateRequest() *registry.Kind {
	doc := certificatesv1beta1.PodCertificateRequestSpec{}.SwaggerDoc()
	setExpiration := func(r *podRequest) {
		const day = 24 * 60 * 60
		declare.Pointer(&r.Spec.MaxExpirationSeconds, int32(day))
	}
	return &registry.Kind{
		Names: registry.Names{
			Group: "certificates.k8s.io", Package: "certificates", Resource: "podcertificaterequests",
			Name: "PodCertificateRequest", Namespaced: true,
		},
		Versions: []registry.Version{
			declare.SameMessage[certificatesv1.PodCertificateRequest]("v1", setExpiration),
			declare.Version("v1beta1", setExpiration),
		},
		Storage:      registry.Storage{Version: "v1beta1", Path: "podcertificaterequests"},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Selection: registry.Selection{
			Fields: []registry.Field{
				{Name: "spec.signerName", Path: []int32{2, 1}}, {Name: "spec.podName", Path: []int32{2, 2}},
				{Name: "spec.nodeName", Path: []int32{2, 6}},
			},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*podRequest]{
			StatusKeepsMeta: true,
			ValidateCreate:  func(r *podRequest) field.ErrorList { return validatePodRequest(&r.Spec) },
			ValidateUpdate: func(r, old *podRequest) field.ErrorList {
				return declare.Immutable(r.Spec, old.Spec, field.NewPath("spec"))
			},
			// Whether the user may sign for the signer is a rule of admission.
			ValidateStatusUpdate: func(r, old *podRequest) field.ErrorList {
				return validatePodRequestStatus(r, old, time.Now())
			},
		}.Untyped(),
		Table: registry.Table[*podRequest]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("PodName", "string", doc["podName"]),
				table.Column("ServiceAccountName", "string", doc["serviceAccountName"]),
				table.Column("NodeName", "string", doc["nodeName"]),
				table.Column("SignerName", "string", doc["signerName"]),
				table.Column("State", "string", "Is the request Pending, Issued, Denied, or Failed?"),
				table.Column("UnverifiedUserAnnotations", "string", doc["unverifiedUserAnnotations"]),
			},
			Cells: func(r *podRequest) []any {
				state := "Pending"
				for _, c := range r.Status.Conditions {
					if isFinal(c.Type) {
						state = c.Type
					}
				}
				s := &r.Spec
				return []any{r.Name, s.PodName, s.ServiceAccountName, string(s.NodeName), s.SignerName, state,
					labels.FormatLabels(s.UnverifiedUserAnnotations)}
			},
		}.Untyped(),
	}
}
