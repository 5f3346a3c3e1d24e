package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	maxKeySize   = 10 << 10  // bytes of a key, a signature or a certificate request
	maxChainSize = 100 << 10 // bytes of PEM
	maxUIDSize   = 128

	// The lifetimes that may be requested: 1 hour to 91 days, and at most 24 hours from a signer of Kubernetes,
	// as the field maxExpirationSeconds documents.
	minSeconds           = 60 * 60
	maxSeconds           = 91 * 24 * 60 * 60
	maxKubernetesSeconds = 24 * 60 * 60
)

// validatePodRequest validates a spec. Each name has a UID beside it: a signer must not give the certificate of a
// pod to another pod that got the same name later. That the objects exist and belong together is not checked
// here.
func validatePodRequest(s *certificatesv1beta1.PodCertificateRequestSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := core.ValidateSignerName(path.Child("signerName"), s.SignerName)
	errs = append(errs, core.ValidateUserAnnotations(s.UnverifiedUserAnnotations, path.Child("unverifiedUserAnnotations"))...)
	for _, of := range []struct {
		field, name, uidField, uid string
		validate                   func(string, bool) []string
	}{
		{"podName", s.PodName, "podUID", string(s.PodUID), apivalidation.NameIsDNSSubdomain},
		{"serviceAccountName", s.ServiceAccountName, "serviceAccountUID", string(s.ServiceAccountUID),
			apivalidation.ValidateServiceAccountName},
		{"nodeName", string(s.NodeName), "nodeUID", string(s.NodeUID), apivalidation.NameIsDNSSubdomain},
	} {
		errs = append(errs, field.Messages(path.Child(of.field), of.name, of.validate(of.name, false))...)
		errs = append(errs, field.InvalidIf(of.uid == "", path.Child(of.uidField), of.uid, "must not be empty")...)
		errs = append(errs, field.MaxLength(path.Child(of.uidField), of.uid, maxUIDSize)...)
	}
	expiration := path.Child("maxExpirationSeconds")
	if s.MaxExpirationSeconds == nil {
		return append(errs, field.Required(expiration, "must be set"))
	}
	most := int32(maxSeconds)
	if core.IsKubernetesSigner(s.SignerName) {
		most = maxKubernetesSeconds
	}
	if n := *s.MaxExpirationSeconds; n < minSeconds || n > most {
		errs = append(errs, field.Invalid(expiration, n, fmt.Sprintf("must be in the range [%d, %d]", minSeconds, most)))
	}
	return append(errs, validateKey(s, path)...)
}

// validateKey requires either a certificate request, or a public key with a signature that proves its possession.
func validateKey(s *certificatesv1beta1.PodCertificateRequestSpec, path *field.Path) field.ErrorList {
	request, key, proof := len(s.StubPKCS10Request) > 0, len(s.PKIXPublicKey) > 0, len(s.ProofOfPossession) > 0
	switch {
	case request && !key && !proof:
		return validateStubRequest(s.StubPKCS10Request, path.Child("stubPKCS10Request"))
	case !request && key && proof:
		return validatePublicKey(s, path.Child("pkixPublicKey"), path.Child("proofOfPossession"))
	}
	return field.ErrorList{field.Invalid(path, field.OmitValueType{},
		"exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")}
}

// keyRules returns what is wrong with the kind of a public key, and the value to report.
// curves is the detail for a curve that is not supported. The text differs between the two ways to send a key:
// that of the deprecated field pkixPublicKey leaves out P521, which is accepted there too.
func keyRules(key crypto.PublicKey, curves string) (value any, detail string) {
	const bitsOfByte = 8
	switch key := key.(type) {
	case ed25519.PublicKey:
		return nil, ""
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return "curve " + key.Params().Name, curves
		}
		return nil, ""
	case *rsa.PublicKey:
		// RSA keys of 2048 bits, which most tools make, are refused.
		if bits := key.Size() * bitsOfByte; bits != 3072 && bits != 4096 {
			return fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096"
		}
		return nil, ""
	}
	return nil, "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
}

// validateStubRequest validates a certificate request in DER, not PEM. Its subject is not read: most signers take
// only the key from it. The signature proves that the kubelet has the private key.
func validateStubRequest(data []byte, path *field.Path) field.ErrorList {
	if len(data) > maxKeySize {
		return field.ErrorList{field.TooLong(path, data, maxKeySize)}
	}
	request, err := x509.ParseCertificateRequest(data)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	value, detail := keyRules(request.PublicKey, "elliptic public keys must use curve P256, P384, or P521")
	if detail != "" {
		if value == nil {
			value = field.OmitValueType{}
		}
		return field.ErrorList{field.Invalid(path, value, detail)}
	}
	return field.InvalidIf(request.CheckSignature() != nil, path, field.OmitValueType{}, "invalid signature")
}

// validatePublicKey validates the key, and that it has signed the UID of the pod.
func validatePublicKey(s *certificatesv1beta1.PodCertificateRequestSpec, path, proofPath *field.Path) field.ErrorList {
	if len(s.PKIXPublicKey) > maxKeySize {
		return field.ErrorList{field.TooLong(path, s.PKIXPublicKey, maxKeySize)}
	}
	if len(s.ProofOfPossession) > maxKeySize {
		return field.ErrorList{field.TooLong(proofPath, s.ProofOfPossession, maxKeySize)}
	}
	key, err := x509.ParsePKIXPublicKey(s.PKIXPublicKey)
	if err != nil {
		return field.ErrorList{field.Invalid(path, s.PKIXPublicKey, "must be a valid PKIX-serialized public key")}
	}
	if value, detail := keyRules(key, "elliptic public keys must use curve P256 or P384"); detail != "" {
		if value == nil {
			value = s.PKIXPublicKey
		}
		return field.ErrorList{field.Invalid(path, value, detail)}
	}
	return field.InvalidIf(!verify(key, []byte(s.PodUID), s.ProofOfPossession), proofPath, field.OmitValueType{},
		"could not verify proof-of-possession signature")
}

// verify reports whether the key has made the signature of a message.
// An Ed25519 signature is over the message, the others are over its SHA-256 hash: RSASSA-PSS (RFC 8017) for RSA,
// ASN.1 (SEC 1) for ECDSA.
func verify(key crypto.PublicKey, message, signature []byte) bool {
	hash := sha256.Sum256(message)
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, signature)
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, hash[:], signature)
	case *rsa.PublicKey:
		return rsa.VerifyPSS(key, crypto.SHA256, hash[:], signature, nil) == nil
	}
	return false
}

// finalConditions are the types of conditions that end a request.
func finalConditions() []string {
	return []string{
		certificatesv1beta1.PodCertificateRequestConditionTypeIssued,
		certificatesv1beta1.PodCertificateRequestConditionTypeDenied,
		certificatesv1beta1.PodCertificateRequestConditionTypeFailed,
	}
}

func isFinal(conditionType string) bool { return slices.Contains(finalConditions(), conditionType) }

// outcome returns the type of the condition that has ended a request, "" if it has not ended.
func outcome(r *podRequest) string {
	for _, c := range r.Status.Conditions {
		if isFinal(c.Type) && c.Status == metav1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// validatePodRequestStatus allows one change of the status, which sets an outcome and everything that belongs to
// it. Without an outcome the status has to stay as it was, and after one it is final.
func validatePodRequestStatus(r, old *podRequest, now time.Time) field.ErrorList {
	path := field.NewPath("status")
	errs := validateOutcomes(r.Status.Conditions, path.Child("conditions"))
	errs = append(errs, metav1validation.ValidateConditions(r.Status.Conditions, path.Child("conditions").K8s())...)
	if len(errs) > 0 {
		return errs
	}
	want, detail := old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`
	switch is := outcome(r); {
	case outcome(old) != "":
		detail = "immutable after PodCertificateRequest is issued, denied, or failed"
	case is == certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(r, old, now)
	case is != "":
		want = certificatesv1beta1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}
		detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
	}
	return field.InvalidIf(!equality.Semantic.DeepEqual(r.Status, want), path, field.OmitValueType{}, detail)
}

// validateOutcomes allows only conditions that end a request, one of them, and it must be true.
func validateOutcomes(conditions []metav1.Condition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range conditions {
		at := path.Child(fmt.Sprintf("[%d]", i)) // kube-apiserver writes the index as a name
		if !isFinal(c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, finalConditions()))
			continue
		}
		before := slices.ContainsFunc(conditions[:i], func(c metav1.Condition) bool { return isFinal(c.Type) })
		errs = append(errs, field.InvalidIf(before, at.Child("type"), c.Type,
			`There may be at most one condition with type "Issued", "Denied", or "Failed"`)...)
		errs = append(errs, field.OneOf(at.Child("status"), c.Status, metav1.ConditionTrue)...)
	}
	return errs
}

// validateIssued validates the certificates and times of a request that is issued now.
// Only the first certificate, the leaf, is compared with the request. The others are intermediate certificates
// for TLS handshakes, and only have to be readable.
func validateIssued(r, old *podRequest, now time.Time) field.ErrorList {
	path := field.NewPath("status", "certificateChain")
	chain := r.Status.CertificateChain
	if len(chain) > maxChainSize {
		return field.ErrorList{field.TooLong(path, chain, maxChainSize)}
	}
	wrong := func(detail string) field.ErrorList { return field.ErrorList{field.Invalid(path, chain, detail)} }
	block, rest := pem.Decode([]byte(chain))
	if block == nil {
		return wrong("issued certificate chain must contain at least one certificate")
	}
	if block.Type != "CERTIFICATE" {
		return wrong("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return wrong("leaf certificate does not parse as valid X.509")
	}
	errs := validateLeafNames(leaf, path)
	if key, ok := requestedKey(&old.Spec).(interface{ Equal(crypto.PublicKey) bool }); !ok || !key.Equal(leaf.PublicKey) {
		return append(errs, wrong("leaf certificate was not issued to the requested public key")...)
	}
	if errs = append(errs, validateIssuedTimes(r, leaf, now)...); len(errs) > 0 {
		return errs
	}
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return wrong("issued certificate chain must consist entirely of CERTFICATE PEM blocks")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return wrong("intermediate certificate does not parse as valid X.509")
		}
	}
	return nil
}

// requestedKey returns the public key of a valid request, nil if it cannot be read.
func requestedKey(s *certificatesv1beta1.PodCertificateRequestSpec) crypto.PublicKey {
	if len(s.StubPKCS10Request) > 0 {
		request, err := x509.ParseCertificateRequest(s.StubPKCS10Request)
		if err != nil {
			return nil
		}
		return request.PublicKey
	}
	key, err := x509.ParsePKIXPublicKey(s.PKIXPublicKey)
	if err != nil {
		return nil
	}
	return key
}

func validateLeafNames(leaf *x509.Certificate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		errs = append(errs, field.InvalidIf(name == "", path, name, "leaf certificate should not contain empty DNSName")...)
		errs = append(errs, field.InvalidIf(strings.Contains(name, ".."), path, name,
			"leaf certificate's DNSName should not contain '..'")...)
		errs = append(errs, field.InvalidIf(strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."), path, name,
			"leaf certificate's DNSName should not start or end with '.'")...)
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(path, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

// validateIssuedTimes compares the times of the status with those of the certificate.
func validateIssuedTimes(r *podRequest, leaf *x509.Certificate, now time.Time) field.ErrorList {
	const consistent = "must be present and consistent with the issued certificate"
	status := field.NewPath("status")
	before, after, refresh := status.Child("notBefore"), status.Child("notAfter"), status.Child("beginRefreshAt")
	s := &r.Status
	errs := field.Join(
		field.RequiredIf(s.NotBefore == nil, before, consistent),
		field.RequiredIf(s.NotAfter == nil, after, consistent),
		field.RequiredIf(s.BeginRefreshAt == nil, refresh,
			"must be present and in the range [notbefore+10min, notafter-10min]"))
	if len(errs) > 0 {
		return errs
	}
	// near is how far the clock of the signer may be from that of the server. A signer that dates its
	// certificates back by more is refused. margin keeps the time of the refresh away from both ends.
	const near, margin = 5 * time.Minute, 10 * time.Minute
	lifetime, most := leaf.NotAfter.Sub(leaf.NotBefore), *r.Spec.MaxExpirationSeconds
	chain := status.Child("certificateChain")
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return field.ErrorList{field.Invalid(before, s.NotBefore.Time,
			"must be set to the NotBefore time encoded in the leaf certificate")}
	case s.NotBefore.Time.Before(now.Add(-near)) || s.NotBefore.Time.After(now.Add(near)):
		return field.ErrorList{field.Invalid(before, s.NotBefore.Time,
			"must be set to within 5 minutes of kube-apiserver's current time")}
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return field.ErrorList{field.Invalid(after, s.NotAfter.Time,
			"must be set to the NotAfter time encoded in the leaf certificate")}
	case lifetime < time.Hour:
		return field.ErrorList{field.Invalid(chain, lifetime, "leaf certificate lifetime must be >= 1 hour")}
	case lifetime > time.Duration(most)*time.Second:
		return field.ErrorList{field.Invalid(chain, lifetime,
			fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", most))}
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(margin)):
		return field.ErrorList{field.Invalid(refresh, s.BeginRefreshAt.Time,
			"must be at least 10 minutes after status.notBefore")}
	case s.BeginRefreshAt.After(s.NotAfter.Add(-margin)):
		return field.ErrorList{field.Invalid(refresh, s.BeginRefreshAt.Time,
			"must be at least 10 minutes before status.notAfter")}
	}
	return nil
}
