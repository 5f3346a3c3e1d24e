package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// issued makes a request and a certificate, both encoded.
func issued(t *testing.T) (request, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	request = pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der})
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	if der, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key); err != nil {
		t.Fatal(err)
	}
	return request, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})
}

// holds compares errors, in the order in which they come, with parts of them.
func holds(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	got := make([]string, len(errs))
	for i, err := range errs {
		got[i] = err.Error()
	}
	if !slices.EqualFunc(got, want, strings.Contains) {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

func TestRequestValidation(t *testing.T) {
	request, certificate := issued(t)
	seconds := func(n int32) *int32 { return &n }
	for name, c := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequestSpec)
		want   []string
	}{
		"a good one": {func(*certificatesv1.CertificateSigningRequestSpec) {}, nil},
		"text": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.Request = []byte("x") },
			[]string{"spec.request: Invalid value"}},
		"a certificate": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.Request = certificate },
			[]string{"PEM block type must be CERTIFICATE REQUEST"}},
		"no usages": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.Usages = nil },
			[]string{"spec.usages: Required value"}},
		"odd usages": {func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = append(s.Usages, "fun",
				"any")
		}, []string{`spec.usages[1]: Unsupported value: "fun": supported values: "any", "cert sign"`,
			`spec.usages[2]: Duplicate value: "any"`}},
		"no signer": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "" },
			[]string{"spec.signerName: Required value"}},
		"the first signer": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = legacySigner },
			[]string{"the legacy signerName is not allowed via this API version"}},
		"no domain": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "com" },
			[]string{"must be a fully qualified domain and path"}},
		"a path": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "a.com/b/c" },
			[]string{"must be a fully qualified domain and path"}},
		"a short domain": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "com/b" },
			[]string{"should be a domain with at least two segments"}},
		"odd labels": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "A.B.com/c.-d" },
			[]string{`Invalid value: "A.B.com": validating label "A"`, `Invalid value: "c.-d": validating label "-d"`}},
		"a long name": {func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = "a.com/" + strings.Repeat("b.", 300) + "b"
		}, []string{"may not be more than 571 bytes"}},
		"a short life": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = seconds(599) },
			[]string{"may not specify a duration less than 600 seconds (10 minutes)"}},
		"the shortest": {func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = seconds(600) }, nil},
	} {
		s := certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: "example.com/foo",
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageAny}}
		c.change(&s)
		holds(t, name, validateSpec(&s), c.want...)
	}
	request[len(request)/2]++ // what was signed is another
	if err := checkRequest(request); err == nil {
		t.Error("a forged signature holds")
	}
}

func TestApprovalAndCertificateRules(t *testing.T) {
	request, certificate := issued(t)
	cond := func(kind, status string) condition {
		return condition{Type: certificatesv1.RequestConditionType(kind), Status: corev1.ConditionStatus(status)}
	}
	approved, denied, failed := cond("Approved", "True"), cond("Denied", "True"), cond("Failed", "True")
	type status struct {
		certificate []byte
		conditions  []condition
	}
	of := func(conditions ...condition) status { return status{nil, conditions} }
	const exclusive = `must specify at most one of: ` + "`" + approvedCondition
	for name, c := range map[string]struct {
		old, now status
		approval bool
		want     []string
	}{
		"approval": {of(), of(approved), true, nil},
		"approval by a signer": {of(), of(approved), false,
			[]string{`updates may not add a condition of type "Approved"`}},
		"a denial taken back": {of(denied), of(), true,
			[]string{`updates may not remove a condition of type "Denied"`}},
		"a failure":      {of(approved), of(approved, failed), false, nil},
		"both":           {of(), of(approved, denied), true, []string{exclusive}},
		"both as before": {of(denied, approved), of(approved, denied), true, nil},
		"a half approval": {of(), of(cond("Approved", "False")), true,
			[]string{`status.conditions[0].status: Unsupported value: "False": supported values: "True"`}},
		"another condition": {of(), of(cond("Other", "Unknown")), true, nil},
		"an odd one": {of(), of(cond("", "odd")), true,
			[]string{"status.conditions[0].type: Required value", `supported values: "False", "True", "Unknown"`}},
		"one without a status": {of(), of(cond("Other", "")), true,
			[]string{"status.conditions[0].status: Required value"}},
		"one twice": {of(), of(failed, failed), true,
			[]string{`status.conditions[1].type: Duplicate value: "Failed"`}},
		"one twice as before": {of(failed, failed), of(failed, failed), true, nil},
		"a certificate":       {of(approved), status{certificate, []condition{approved}}, false, nil},
		"another one": {status{certificate, nil}, status{slices.Concat(certificate, certificate), nil}, false,
			[]string{"updates may not modify existing certificate content"}},
		"text for a certificate": {of(), status{[]byte("x"), nil}, false,
			[]string{"must contain at least one CERTIFICATE PEM block"}},
		"a request for a certificate": {of(), status{request, nil}, false,
			[]string{`only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"`}},
		"headers": {of(),
			status{pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Headers: map[string]string{"a": "b"}}), nil}, false,
			[]string{"no PEM block headers are permitted"}},
		"an empty block": {of(), status{pem.EncodeToMemory(&pem.Block{Type: certificateBlock}), nil}, false,
			[]string{"found CERTIFICATE PEM block containing 0 certificates"}},
	} {
		r, old := &csr{}, &csr{}
		r.Status.Certificate, r.Status.Conditions = c.now.certificate, c.now.conditions
		old.Status.Certificate, old.Status.Conditions = c.old.certificate, c.old.conditions
		holds(t, name, validateStatus(r, old, c.approval), c.want...)
	}
}

func TestSignerMayNotChangeApproval(t *testing.T) {
	r, old := &csr{}, &csr{}
	old.Status.Conditions = []condition{
		{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "right"}}
	r.Status.Conditions = []condition{{Type: certificatesv1.CertificateFailed},
		{Type: certificatesv1.CertificateApproved, Reason: "forged"}}
	keepDecisions(r, old)
	if got := r.Status.Conditions[1]; got.Reason != "right" ||
		r.Status.Conditions[0].Type != certificatesv1.CertificateFailed {
		t.Errorf("%+v", r.Status.Conditions)
	}
}
