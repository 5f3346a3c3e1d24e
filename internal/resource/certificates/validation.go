package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	// shortestLife is the least expirationSeconds that the API documents: 10 minutes.
	shortestLife = 600 // seconds

	// legacySigner signed what earlier versions of the API asked for without naming
	// a signer.
	legacySigner = "kubernetes.io/legacy-unknown"

	requestBlock     = "CERTIFICATE REQUEST"
	certificateBlock = "CERTIFICATE"
)

// knownUsages are what a certificate can be for.
// They are the key usages and the extended key usages of RFC 5280 (4.2.1.3 and 4.2.1.12), and some others, such as
// those for IPsec and those of Microsoft and Netscape.
var knownUsages = sets.New(
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
	certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign, certificatesv1.UsageEncipherOnly,
	certificatesv1.UsageDecipherOnly,
	certificatesv1.UsageAny, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth,
	certificatesv1.UsageCodeSigning,
	certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem,
	certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping, certificatesv1.UsageOCSPSigning,
	certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
)

// validateSpec checks what is requested. It cannot change later: updates have no
// need to check it again.
func validateSpec(s *certificatesv1.CertificateSigningRequestSpec) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if err := checkRequest(s.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), s.Request, err.Error()))
	}
	errs = append(errs, validateUsages(spec.Child("usages"), s.Usages)...)
	if s.SignerName == legacySigner {
		errs = append(errs,
			field.Invalid(spec.Child("signerName"), s.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, core.ValidateSignerName(spec.Child("signerName"), s.SignerName)...)
	}
	return append(errs, field.AtLeast(spec.Child("expirationSeconds"), s.ExpirationSeconds, shortestLife,
		"may not specify a duration less than 600 seconds (10 minutes)")...)
}

// checkRequest demands a PKCS#10 request (RFC 2986) that its own key has signed.
func checkRequest(encoded []byte) error {
	block, _ := pem.Decode(encoded)
	if block == nil || block.Type != requestBlock {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// validateUsages requires at least one usage, because a signer decides by the usages what kind of certificate is
// asked for. For example, kube-apiserver-client needs client auth.
func validateUsages(path *field.Path, usages []certificatesv1.KeyUsage) field.ErrorList {
	if len(usages) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for i, usage := range usages {
		if !knownUsages.Has(usage) {
			errs = append(errs, field.NotSupported(path.Index(i), usage, sets.List(knownUsages)))
		}
		errs = append(errs, field.DuplicateIf(slices.Contains(usages[:i], usage), path.Index(i), usage)...)
	}
	return errs
}

// validateStatus checks what an approver (approval) or a signer made of the
// status. What was wrong before may stay so.
func validateStatus(r, old *csr, approval bool) field.ErrorList {
	errs := validateConditions(r.Status.Conditions, old.Status.Conditions)
	errs = append(errs, validateDecisions(r, old, approval)...)
	path := field.NewPath("status", "certificate")
	now, before := r.Status.Certificate, old.Status.Certificate
	if bytes.Equal(now, before) {
		return errs
	}
	// Both errors can be there: the certificate cannot be changed once it is set, not even to repair it.
	if err := checkCertificates(now); err != nil && checkCertificates(before) == nil {
		errs = append(errs, field.Invalid(path, "<certificate data>", err.Error()))
	}
	return append(errs, field.ForbiddenIf(len(before) > 0, path,
		"updates may not modify existing certificate content")...)
}

type condition = certificatesv1.CertificateSigningRequestCondition

func validateConditions(conditions, old []condition) field.ErrorList {
	path := field.NewPath("status", "conditions")
	tolerated := faultsOf(old)
	var errs field.ErrorList
	for i := range conditions {
		c := &conditions[i]
		errs = append(errs, field.RequiredIf(c.Type == "" && !tolerated.untyped, path.Index(i).Child("type"), "")...)
		errs = append(errs, validateConditionStatus(path.Index(i).Child("status"), c)...)
		errs = append(errs, field.DuplicateIf(hasType(conditions[:i], c.Type) && !tolerated.repeated,
			path.Index(i).Child("type"), c.Type)...)
	}
	return append(errs, field.InvalidIf(faultsOf(conditions).contradictory && !tolerated.contradictory, path,
		"{"+approvedCondition+", "+deniedCondition+"}",
		"must specify at most one of: `"+approvedCondition+"`, `"+deniedCondition+"`")...)
}

// The conditions that exclude each other, as messages name them.
const (
	approvedCondition = `conditions[{"type": "Approved"}]`
	deniedCondition   = `conditions[{"type": "Denied"}]`
)

// faults says which errors a list of conditions has. An update may keep those that the stored list has.
type faults struct{ untyped, contradictory, repeated bool }

func faultsOf(conditions []condition) faults {
	f := faults{
		untyped: hasType(conditions, ""),
		contradictory: hasType(conditions, certificatesv1.CertificateApproved) &&
			hasType(conditions, certificatesv1.CertificateDenied),
	}
	for i := range conditions {
		f.repeated = f.repeated || hasType(conditions[:i], conditions[i].Type)
	}
	return f
}

// validateConditionStatus validates the status of a condition. Approved, Denied and Failed can only be True: a
// decision is taken by adding the condition and cannot be taken back. Conditions of other types may be True,
// False or Unknown.
func validateConditionStatus(path *field.Path, c *condition) field.ErrorList {
	allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
	switch c.Type {
	case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
		allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
	}
	return field.RequiredOneOf(path, c.Status, allowed...)
}

// validateDecisions forbids to remove a condition Approved, Denied or Failed. Only the subresource approval may add
// Approved and Denied.
func validateDecisions(r, old *csr, approval bool) field.ErrorList {
	path := field.NewPath("status", "conditions")
	var errs field.ErrorList
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved,
		certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		now, before := len(positions(r, t)), len(positions(old, t))
		switch {
		case now < before:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		case now > before && t != certificatesv1.CertificateFailed && !approval:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	return errs
}

// checkCertificates demands PEM blocks of certificates and of nothing else, or
// nothing at all.
func checkCertificates(encoded []byte) error {
	if len(encoded) == 0 {
		return nil
	}
	found := false
	for block, rest := pem.Decode(encoded); block != nil; block, rest = pem.Decode(rest) {
		found = true
		switch {
		case block.Type != certificateBlock:
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		case len(block.Headers) != 0:
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if !found {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

func hasType(conditions []condition, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(conditions, func(c condition) bool { return c.Type == t })
}

// positions returns where a request has conditions of a type.
func positions(r *csr, t certificatesv1.RequestConditionType) []int {
	var out []int
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			out = append(out, i)
		}
	}
	return out
}
