// Package certificates declares the kinds of the certificates.k8s.io API group.
package certificates

import (
	"bytes"
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{certificateSigningRequest()} }

type csr = certificatesv1.CertificateSigningRequest

func certificateSigningRequest() *registry.Kind {
	spec := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return &registry.Kind{
		Group: "certificates.k8s.io", Package: "certificates",
		Resource: "certificatesigningrequests", Singular: "certificatesigningrequest", Name: "CertificateSigningRequest",
		MetaOnUpdate: registry.MetaWhole,
		ShortNames:   []string{"csr"},
		Versions:     []registry.Version{declare.Version("v1", func() *csr { return &csr{} }, nil)},
		Storage:      "v1", StoragePath: "certificatesigningrequests",
		UnconditionalUpdate: true,
		Subresources: []registry.Subresource{
			{Name: "approval", Verbs: declare.PartVerbs, Update: &registry.UpdatePart{
				Prepare: func(_ context.Context, obj, old registry.Object) { prepareApproval(obj.(*csr), old.(*csr), time.Now()) },
				Validate: func(_ context.Context, obj, old registry.Object) field.ErrorList {
					return validateConditions(obj.(*csr), old.(*csr), true)
				},
				Unconditional: true,
			}},
			declare.Status(),
		},
		Fields:     []registry.Field{{Name: "spec.signerName", Path: []int32{2, 7}}},
		FieldError: declare.FieldLabel,
		Columns: []metav1.TableColumnDefinition{
			core.NameColumn,
			core.AgeColumn,
			declare.Column("SignerName", "string", spec["signerName"]),
			declare.Column("Requestor", "string", spec["request"]),
			declare.Column("RequestedDuration", "string", spec["expirationSeconds"]),
			declare.Column("Condition", "string", certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]),
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*csr]{
			Spec:          func(r *csr) any { return &r.Spec },
			Status:        func(r *csr) any { return &r.Status },
			PrepareCreate: func(ctx context.Context, r *csr) { setRequester(&r.Spec, request.UserFrom(ctx)) },
			// What was requested stays as it was.
			PrepareUpdate: func(_ context.Context, r, old *csr) { r.Spec = old.Spec },
			PrepareStatusUpdate: func(_ context.Context, r, old *csr) {
				setConditionTimes(r.Status.Conditions, old.Status.Conditions, metav1.NewTime(time.Now()))
			},
			ValidateStatusUpdate: func(_ context.Context, r, old *csr) field.ErrorList {
				errs := validateConditions(r, old, false)
				if len(old.Status.Certificate) > 0 && !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
					errs = append(errs, field.Forbidden(field.NewPath("status", "certificate"), "updates may not modify existing certificate content"))
				}
				return errs
			},
			Cells: declare.Cells(cells),
		}),
	}
}

// setRequester records who asks: a signer decides by it, so that nobody may say
// it of himself.
func setRequester(s *certificatesv1.CertificateSigningRequestSpec, u *request.User) {
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

// validateConditions keeps each subresource to its own conditions: Approved and
// Denied are the approval's, and nobody takes back what was decided.
func validateConditions(r, old *csr, approval bool) field.ErrorList {
	path := field.NewPath("status", "conditions")
	var errs field.ErrorList
	now, before := conditionTypes(r), conditionTypes(old)
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		decision := t != certificatesv1.CertificateFailed
		switch {
		case before[t] && !now[t]:
			errs = append(errs, field.Forbidden(path, `updates may not remove a condition of type "`+string(t)+`"`))
		case !before[t] && now[t] && decision && !approval:
			errs = append(errs, field.Forbidden(path, `updates may not add a condition of type "`+string(t)+`"`))
		}
	}
	return errs
}

func conditionTypes(r *csr) map[certificatesv1.RequestConditionType]bool {
	types := map[certificatesv1.RequestConditionType]bool{}
	for _, c := range r.Status.Conditions {
		types[c.Type] = true
	}
	return types
}

func cells(r *csr) []any {
	duration := core.None
	if s := r.Spec.ExpirationSeconds; s != nil {
		duration = core.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{r.Name, core.Age(r.CreationTimestamp), r.Spec.SignerName, r.Spec.Username, duration, state(r)}
}

func state(r *csr) string {
	types := conditionTypes(r)
	state := "Pending"
	switch {
	case types[certificatesv1.CertificateDenied]:
		state = "Denied"
	case types[certificatesv1.CertificateApproved]:
		state = "Approved"
	}
	if types[certificatesv1.CertificateFailed] {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
