// Package certificates declares the kinds of the certificates.k8s.io API group.
package certificates

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	kinds := []*registry.Kind{certificateSigningRequest()}
	if gates.Enabled(features.ClusterTrustBundle) {
		kinds = append(kinds, clusterTrustBundle())
	}
	if gates.Enabled(features.PodCertificateRequest) {
		kinds = append(kinds, podCertificateRequest())
	}
	return kinds
}

type csr = certificatesv1.CertificateSigningRequest

// certificateSigningRequest declares the requests for certificates. Three clients with different permissions
// write them: the requester creates the spec, which never changes; an approver adds a condition by the
// subresource approval; a signer adds the certificate by the subresource status.
func certificateSigningRequest() *registry.Kind {
	// kube-apiserver still describes the columns in the words of the beta version.
	spec := certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()
	status := certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: "certificates.k8s.io", Package: "certificates", Resource: "certificatesigningrequests",
			Name: "CertificateSigningRequest", ShortNames: []string{"csr"},
		},
		Versions: []registry.Version{declare.Version[csr]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "certificatesigningrequests"},
		Requests: registry.Requests{UnconditionalUpdate: true, Resets: []string{"spec", "status"}},
		Metadata: registry.Metadata{
			ValidateName: declare.PathSegment, OnUpdate: registry.MetaWhole, OnStatusUpdate: registry.MetaWhole,
		},
		Subresources: []registry.Subresource{
			{Name: "approval", Verbs: declare.PartVerbs, Update: registry.UpdatePart[*csr]{
				Prepare:       func(r, old *csr) { prepareApproval(r, old, time.Now()) },
				Validate:      func(r, old *csr) field.ErrorList { return validateStatus(r, old, true) },
				Unconditional: true,
			}.Untyped(), Resets: []string{"spec", "status.certificate"}},
			declare.Status("spec", "status.conditions"),
		},
		Selection: registry.Selection{
			Fields:     []registry.Field{{Name: "spec.signerName", Path: []int32{2, 7}}},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*csr]{
			// An update cannot change the spec.
			PrepareUpdate: func(r, old *csr) { r.Spec = old.Spec },
			PrepareStatusUpdate: func(r, old *csr) {
				keepDecisions(r, old)
				setConditionTimes(r.Status.Conditions, old.Status.Conditions, metav1.NewTime(time.Now()))
			},
			ValidateCreate:       func(r *csr) field.ErrorList { return validateSpec(&r.Spec) },
			ValidateStatusUpdate: func(r, old *csr) field.ErrorList { return validateStatus(r, old, false) },
			InContext: registry.InContext[*csr]{
				PrepareCreate: func(ctx context.Context, r *csr) { setRequester(&r.Spec, request.UserFrom(ctx)) },
			},
		}.Untyped(),
		Table: registry.Table[*csr]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Age,
				table.Column("SignerName", "string", spec["signerName"]),
				table.Column("Requestor", "string", spec["request"]),
				table.Column("RequestedDuration", "string", spec["expirationSeconds"]),
				table.Column("Condition", "string", status["conditions"]),
			},
			Cells: cells,
		}.Untyped(),
	}
}

// setRequester records who asks: a signer decides by it, so that nobody may say
// it of himself.
func setRequester(s *certificatesv1.CertificateSigningRequestSpec, u *request.User) {
	// The values that the client has sent are removed even if the user is not known.
	s.Username, s.UID, s.Groups, s.Extra = "", "", nil, nil
	if u == nil {
		return
	}
	s.Username, s.UID, s.Groups = u.Name, u.UID, u.Groups
	if len(u.Extra) > 0 {
		s.Extra = map[string]certificatesv1.ExtraValue{}
		for name, values := range u.Extra {
			s.Extra[name] = values
		}
	}
}

// prepareApproval lets the approval subresource change conditions alone.
func prepareApproval(r, old *csr, now time.Time) {
	conditions := r.Status.Conditions
	r.Spec, r.Status = old.Spec, old.Status
	r.Status.Conditions = conditions
	setConditionTimes(conditions, old.Status.Conditions, metav1.NewTime(now))
}

// keepDecisions restores the conditions Approved and Denied in r from old. If r has more or fewer of them than old,
// it does not restore them: validation then refuses the write.
// Approving is a permission of its own (on the subresource approval), which a signer with access to the status
// does not have.
func keepDecisions(r, old *csr) {
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied} {
		now, before := positions(r, t), positions(old, t)
		if len(now) != len(before) {
			continue
		}
		for i := range now {
			r.Status.Conditions[now[i]] = old.Status.Conditions[before[i]]
		}
	}
}

// setConditionTimes fills in the times that the client left out. A condition that
// keeps its status keeps its time of transition.
func setConditionTimes(conditions, old []certificatesv1.CertificateSigningRequestCondition, now metav1.Time) {
	for i := range conditions {
		c := &conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, before := range old {
			if before.Type == c.Type && before.Status == c.Status && !before.LastTransitionTime.IsZero() {
				c.LastTransitionTime = before.LastTransitionTime
				break
			}
		}
	}
}

// cells returns the cells of a row. The column Requestor has the user name that setRequester has recorded.
func cells(r *csr) []any {
	duration := table.None
	if s := r.Spec.ExpirationSeconds; s != nil {
		duration = table.Duration(time.Duration(*s) * time.Second)
	}
	return []any{r.Name, table.AgeOf(r.CreationTimestamp), r.Spec.SignerName, r.Spec.Username, duration, state(r)}
}

// state returns the cell of the column Condition, such as Approved,Issued. A request that is denied and approved,
// which only old objects can be, is shown as denied.
func state(r *csr) string {
	conditions := r.Status.Conditions
	state := "Pending"
	switch {
	case hasType(conditions, certificatesv1.CertificateDenied):
		state = "Denied"
	case hasType(conditions, certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if hasType(conditions, certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
