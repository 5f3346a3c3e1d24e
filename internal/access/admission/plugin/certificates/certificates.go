// Package certificates has the plug-ins for CertificateSigningRequests. CertificateApproval and CertificateSigning
// require a permission for the signer, in addition to that for the subresource. CertificateSubjectRestriction refuses
// requests for client certificates of the group system:masters.
package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// resource is the resource of most plug-ins here. Attest checks bundleResource, and PodSigning checks podResource.
var (
	resource       = certificatesv1.Resource("certificatesigningrequests")
	bundleResource = certificatesv1.Resource("clustertrustbundles")
	podResource    = certificatesv1.Resource("podcertificaterequests")
)

// Approval returns the plug-in that requires the verb "approve" on the signer of a request that is approved or denied.
func Approval(z authz.Authorizer) admission.Plugin {
	return admission.Plugin{Name: "CertificateApproval", Validate: signerAuthorizer{z}.checkApproval}
}

// Signing returns the plug-in that requires the verb "sign" on the signer of a request whose certificate or conditions
// change.
func Signing(z authz.Authorizer) admission.Plugin {
	return admission.Plugin{Name: "CertificateSigning", Validate: signerAuthorizer{z}.checkSigning}
}

// Attest returns the plug-in that requires the verb "attest" on the signer of a ClusterTrustBundle that is created or
// updated.
func Attest(z authz.Authorizer) admission.Plugin {
	return admission.Plugin{Name: "ClusterTrustBundleAttest", Validate: signerAuthorizer{z}.checkAttest}
}

// PodSigning returns the rule that requires the verb "sign" on the signer of a PodCertificateRequest whose status
// changes. In kube-apiserver the validation of the kind checks this, not a plug-in. So it cannot be disabled, and
// its error is a validation error.
func PodSigning(z authz.Authorizer) admission.Plugin {
	return admission.Plugin{Name: "PodCertificateSigning", Validate: signerAuthorizer{z}.checkPodSigning}
}

// SubjectRestriction returns the plug-in that refuses requests for the group system:masters from the signer of API
// client certificates.
func SubjectRestriction() admission.Plugin {
	return admission.Plugin{Name: "CertificateSubjectRestriction", Validate: restrictSubject}
}

// signerAuthorizer checks permissions on signers.
type signerAuthorizer struct{ authorizer authz.Authorizer }

func (s signerAuthorizer) checkApproval(ctx context.Context, a *admission.Attributes) error {
	if !isUpdateOf(a, "approval") {
		return nil
	}
	// An update cannot change the signer, but the new object may contain another one, so the old object counts.
	signer := a.Old.(*certificatesv1.CertificateSigningRequest).Spec.SignerName
	if !s.allow(ctx, "approve", signer) {
		return a.Forbiddenf("user not permitted to approve requests with signerName %q", signer)
	}
	return nil
}

func (s signerAuthorizer) checkSigning(ctx context.Context, a *admission.Attributes) error {
	if !isUpdateOf(a, "status") {
		return nil
	}
	csr, old := a.Object.(*certificatesv1.CertificateSigningRequest), a.Old.(*certificatesv1.CertificateSigningRequest)
	if bytes.Equal(csr.Status.Certificate, old.Status.Certificate) &&
		equality.Semantic.DeepEqual(csr.Status.Conditions, old.Status.Conditions) {
		return nil
	}
	if !s.allow(ctx, "sign", old.Spec.SignerName) {
		return a.Forbiddenf("user not permitted to sign requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

func (s signerAuthorizer) checkAttest(ctx context.Context, a *admission.Attributes) error {
	if a.Resource != bundleResource || a.Operation != admission.Create && a.Operation != admission.Update {
		return nil
	}
	bundle := a.Object.(*certificatesv1.ClusterTrustBundle)
	signer := bundle.Spec.SignerName // it cannot be changed
	if old, ok := a.Old.(*certificatesv1.ClusterTrustBundle); ok && onlyCollected(bundle, old) {
		return nil
	}
	if signer == "" || s.allow(ctx, "attest", signer) {
		return nil
	}
	return a.Forbiddenf("user not permitted to attest for signerName %q", signer)
}

// onlyCollected reports whether only fields that the garbage collector changes have changed.
func onlyCollected(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	same := bundle.DeepCopy()
	same.OwnerReferences, same.Finalizers = old.OwnerReferences, old.Finalizers
	same.ManagedFields = old.ManagedFields
	return equality.Semantic.DeepEqual(same, old)
}

func (s signerAuthorizer) checkPodSigning(ctx context.Context, a *admission.Attributes) error {
	if a.Operation != admission.Update || a.Resource != podResource || a.Subresource != "status" {
		return nil
	}
	pcr, old := a.Object.(*certificatesv1beta1.PodCertificateRequest), a.Old.(*certificatesv1beta1.PodCertificateRequest)
	if equality.Semantic.DeepEqual(pcr.Status, old.Status) || s.allow(ctx, "sign", old.Spec.SignerName) {
		return nil
	}
	detail := fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q",
		request.UserFrom(ctx).Name, old.Spec.SignerName)
	return kerrors.NewInvalid(a.Stored.Kind.GroupKind(), pcr.Name,
		field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"), detail)})
}

func isUpdateOf(a *admission.Attributes, subresource string) bool {
	return a.Operation == admission.Update && a.Resource == resource && a.Subresource == subresource
}

// allow reports whether the user may use verb on the signer, or on all signers of its domain. The server itself is
// always allowed. An error of the authorizer means no.
func (s signerAuthorizer) allow(ctx context.Context, verb, signer string) bool {
	u := request.UserFrom(ctx)
	if u == nil {
		return true
	}
	domain, _, _ := strings.Cut(signer, "/")
	return slices.ContainsFunc([]string{signer, domain + "/*"}, func(name string) bool {
		decision, _, err := authz.Further(ctx, s.authorizer, authz.Attributes{User: u, Info: &request.Info{
			Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name,
		}})
		return err == nil && decision == authz.Allow
	})
}

func restrictSubject(_ context.Context, a *admission.Attributes) error {
	if !a.Is(resource, admission.Create) {
		return nil
	}
	csr := a.Object.(*certificatesv1.CertificateSigningRequest)
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	parsed, err := ParseRequest(csr.Spec.Request)
	if err != nil {
		return a.Forbiddenf("failed to parse CSR: %w", err)
	}
	if slices.Contains(parsed.Subject.Organization, request.GroupMasters) {
		return a.Forbiddenf("use of %s signer with %s group is not allowed", csr.Spec.SignerName, request.GroupMasters)
	}
	return nil
}

// ParseRequest parses the PEM of a certificate request.
func ParseRequest(encoded []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(encoded)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
