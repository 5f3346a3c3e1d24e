// Package certificates guards who decides on certificates: approval and signing
// need a permission for the signer beside the one for the subresource
// (CertificateApproval, CertificateSigning), and nobody requests a client
// certificate of administrators (CertificateSubjectRestriction).
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
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/request"
)

// resource is the one that the plug-ins judge.
var resource = certificatesv1.Resource("certificatesigningrequests")

// Approval returns the plug-in that asks for the verb "approve" on the signer of
// a request that is approved or denied.
func Approval(z authz.Authorizer) admission.Plugin {
	s := signers{z}
	return admission.Plugin{Name: "CertificateApproval", Validate: s.approval}
}

// Signing returns the plug-in that asks for the verb "sign" on the signer of a
// request that gets its certificate or another condition.
func Signing(z authz.Authorizer) admission.Plugin {
	s := signers{z}
	return admission.Plugin{Name: "CertificateSigning", Validate: s.signing}
}

// SubjectRestriction returns the plug-in that refuses requests of the group that
// may do everything from the signer of the server's clients.
func SubjectRestriction() admission.Plugin {
	return admission.Plugin{Name: "CertificateSubjectRestriction", Validate: restrictSubject}
}

// signers know who may act for which signer.
type signers struct{ authorizer authz.Authorizer }

func (s signers) approval(ctx context.Context, a *admission.Attributes) error {
	if !isUpdateOf(a, "approval") {
		return nil
	}
	// An update cannot change the signer, but must not be judged by what it tries.
	signer := a.Old.(*certificatesv1.CertificateSigningRequest).Spec.SignerName
	if !s.allow(ctx, "approve", signer) {
		return a.Forbidden(fmt.Errorf("user not permitted to approve requests with signerName %q", signer))
	}
	return nil
}

func (s signers) signing(ctx context.Context, a *admission.Attributes) error {
	if !isUpdateOf(a, "status") {
		return nil
	}
	csr, old := a.Object.(*certificatesv1.CertificateSigningRequest), a.Old.(*certificatesv1.CertificateSigningRequest)
	if bytes.Equal(csr.Status.Certificate, old.Status.Certificate) &&
		equality.Semantic.DeepEqual(csr.Status.Conditions, old.Status.Conditions) {
		return nil
	}
	if !s.allow(ctx, "sign", old.Spec.SignerName) {
		return a.Forbidden(fmt.Errorf("user not permitted to sign requests with signerName %q", old.Spec.SignerName))
	}
	return nil
}

func isUpdateOf(a *admission.Attributes, subresource string) bool {
	return a.Operation == admission.Update && a.Resource == resource && a.Subresource == subresource
}

// allow asks for the signer, and then for all signers of its domain. What the
// server does by itself is nobody's to permit; what cannot be decided is not
// allowed.
func (s signers) allow(ctx context.Context, verb, signer string) bool {
	u := request.UserFrom(ctx)
	if u == nil {
		return true
	}
	domain, _, _ := strings.Cut(signer, "/")
	return slices.ContainsFunc([]string{signer, domain + "/*"}, func(name string) bool {
		decision, _, err := s.authorizer.Authorize(ctx, authz.Attributes{User: u, Info: &request.Info{
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
	groups, err := requestedGroups(csr.Spec.Request)
	if err != nil {
		return a.Forbidden(fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(groups, request.GroupMasters) {
		return a.Forbidden(
			fmt.Errorf("use of %s signer with %s group is not allowed", csr.Spec.SignerName, request.GroupMasters),
		)
	}
	return nil
}

// requestedGroups are those that a certificate of the request would put its owner
// in.
func requestedGroups(encoded []byte) ([]string, error) {
	block, _ := pem.Decode(encoded)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return parsed.Subject.Organization, nil
}
